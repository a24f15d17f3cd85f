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
