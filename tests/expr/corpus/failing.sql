cast(x as int)
cast(x as double)
cast(x as boolean)
cast(x as date)
cast(x as decimal(5,2))
cast(s as timestamp)
x > 1
s = 1
t = 'abc'
p = 'abc'
i + 1
i - 1
i * 2
b + 1Y
-i
-b
abs(i)
abs(l)
l + 1
l * 2
k / 0
k % 0
k div 0
i / i
d / 0
c / 0
mod(k, 0)
pmod(k, 0)
cast(l as int)
cast(i as tinyint)
cast(d as int)
cast(c as tinyint)
cast(c as decimal(3,1))
cast('128' as tinyint)
cast('1.5' as int)
cast('' as int)
cast('2020-13-01' as date)
cast('2020-02-30' as date)
cast('2020-01-01 25:00:00' as timestamp)
floor(1e30D)
round(2147483647, -1)
ar[5]
ar[-1]
l div -1
i in (1, 'abc')
coalesce(i, 'abc')
case when i > 0 then 'abc' else 1 end
k > 0 and x > 0
h + b
e / c
k / c
ceil(f)
make_date(2021, 2, 29)
make_timestamp(2020, 1, 31, 25, 0, 0)
split_part('a', 'a', 0)
element_at(ar, 0)
element_at(ar, 9)
elt(5, 'a', 'b')
url_decode('%zz')
decode(y, 'utf-8')
next_day(t, 'xx')
sequence(1, 5, -1)
map('a', i, 'a', k)
map_from_arrays(array('a'), array(1, 2))
timestamp_seconds(l)
timestamp_millis(l)
regexp_extract('a', 'a', 1)
bit_get(b, 8)
to_date('2020-13-01', 'yyyy-MM-dd')
to_timestamp(s, 'yyyy-MM-dd')
slice(ar, 0, 1)
slice(ar, 1, -1)
conv('99999999999999999999', 10, 16)
dateadd(YEAR, 300000, ts)
mask('abc', 'Qa')
transform_keys(m, (k, v) -> 'x')
transform_keys(m, (k, v) -> cast(null as string))
transform(ar, x -> 1 / (x - 1))
c % 0
c div 0
array_insert(ar, 0, 1)
to_binary('xyz')
e % c
to_number('x', '9')
to_number('1234', '999')
nullif(c, c) % (c / 0.0)
zip_with(ar, array(1 div (i - i)), (x, y) -> y)
