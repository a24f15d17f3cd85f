nope = 1
i.a = 1
st.nope = 1
i = true
i = t
p + 1
s * 'x'
t + 1L
t * 2
not i
i and p
case when i then 1 end
if(i, 1, 2)
coalesce(i, t)
greatest(s, 1)
i in (1, true)
cast(t as int)
cast(tn as bigint)
cast(p as date)
cast(y as int)
g div 2
i is true
s[0]
size(i)
year(i)
date_add(t, 1L)
i = 
i = 1 i
x in (1) = true
s like 'a\\'
date 'abc' = t
timestamp '2020-99-01' = ts
1e400
300Y
i between 1
sort_array(ar, '1')
