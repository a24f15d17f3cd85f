i = 1
i <> 1
i != 1 and not i == 5
l > 2147483648
b = 1Y or h = 1S or l = 1L
f = 0
d = 0
f = d
f > 1
d > 1e9
d >= 'NaN'
d < cast('NaN' as double)
d <= 'inf'
d = 'nan'
f <=> 'NaN'
d in (0, 'NaN')
d in (0.0D, double('NaN'), null)
f in (0, 1.5)
-0.0D = d
greatest(f, 1.0F)
least(d, 0)
greatest(i, k, 3)
least(i, null, k)
greatest(c, i)
least(s, 'b')
greatest(t, ts)
c = 1.25
c > 1
c < e
c = i
e = l
c = d
c > 1.2499999
i > 1.5
i = 1.0
l < 9223372036854775807.5
l >= 9223372036854775807.5
i > -99999999999999999999
-99999999999999999999.5 >= l
l = 9223372036854775807.5
n = 1
n > 1
n = 1.0
n = 1.0D
n < c
x = '1.5'
s < 'b'
s = 'ß é'
s > 'z'
s >= 'Abc' and s <= 'a'
t = '2020-01-31'
t < '2000-01-01'
t > ts
t = tn
ts = tn
ts > '2000-01-01'
ts >= '2020-01-31 12:34:56.789'
ts = timestamp'2020-01-31 12:34:56.789'
ts = timestamp '2020-01-31T13:34:56.789+01:00'
tn = timestamp_ntz'2020-01-31 12:34:56.789'
ts < date'2000-01-01'
t between date '1970-01-01' and '2020-12-31'
ts between '1970-01-01' and date'2020-12-31'
p = q
p <=> q
p <=> null
null <=> null
p = 'true'
p > q
p is true
p is not true
p is false
p is not false
p is null
p is unknown
i is null
i is not null
st is null
ar is not null
isnull(i)
isnotnull(i)
isnan(d)
isnan(i)
i is distinct from k
i is not distinct from 5
p and q
p or q
not p
!p or q
p and null
p or null
i in (0, 1, 5)
i in (0, null)
i not in (0, 1)
i not in (0, null)
null in (1, 2)
i in (l, k)
i in (1.0, 5)
i in ('1', '5')
n in (1, 5)
n in ('1', 1)
i in ('1', 2.5)
i in (2.5, '1')
s in ('a', 'Abc', '日本語')
t in ('2020-01-31', date'1970-01-01')
c in (1.25, 7.5)
i between 0 and 5
i not between 0 and 5
k between i and l
i between null and 5
n between 1 and 5
s like 'a%'
s like '%b%'
s like '%c'
s like '_bc'
s like 'x\\_y\\%z'
s like 'x!_y!%z' escape '!'
s like ''
s like '%'
s like null
s like '___'
s not like '%p%'
s ilike 'ABC'
s ilike '%B%'
i like '1%'
s rlike '^[a-z]'
s rlike 'b.$'
s rlike '\\w'
s rlike '[^a-z]'
s rlike r'^\s'
s regexp 'é|語'
regexp_like(s, '^A(b|x)c$')
rlike(s, 'x+')
s rlike ''
case when i > 0 then 'pos' when i < 0 then 'neg' else 'zero' end
case when i > 0 then 1 when i < 0 then -1L end
case i when 1 then 'one' when 5 then 'five' end
case when p then i else c end
case when k > 0 then 1 / k else 0 end
case when i <> 0 then k div i end
case when p then n else 5 end
if(p, i, k)
if(i > 1, 'a', null)
coalesce(i, 0)
coalesce(null, i, k)
coalesce(i, 1.5)
coalesce(t, ts)
coalesce(s, 'none')
nvl(i, 1L)
ifnull(s, '')
nvl2(i, 'y', 'n')
nullif(i, 1)
nullif(s, 'a')
nullif(n, 1)
equal_null(i, k)
k + 1Y
k + b
i + 1L
k + 1
k - 1
k * 3
k + 1.5
k + f
l + d
f + 1
f * f
d + f
d / 3
k / 2
k / 3.0
k / 0.1D
c + 1
c - e
c * c
c * 2
c / 3
c / 7.25
case when c <> 0 then e / c end
nullif(k, 0) / nullif(c, 0)
e + e
c * e
k div 7
k div 2L
l div 2
k % 7
-k % 7
l % 10
g % 1
f % 2
mod(k, 4)
pmod(k, 4)
pmod(g, 1.5)
n + 1
n * 2.5
n / 2
n div 2
-n
+n
abs(n)
null + 1
null / 2
-k
- -k
-c
-d
+k
abs(k)
abs(c)
abs(g)
k & 3
k | 8
k ^ 5
~k
k & 3L
k | 8 & 4
1 + 2 * 3 - 4 / 2
-2 * 3 + 10 % 4
2 + 3 || 'x'
'a' || k || 'b'
floor(g)
ceil(g)
ceiling(c)
floor(c)
floor(e)
floor(k)
ceil(nullif(f, 'inf'))
round(g)
round(g, 1)
round(g, 2)
round(g, -1)
round(c)
round(c, 1)
round(c, 5)
round(k, 2)
round(k, -1)
round(e, 3)
upper(s)
lower(s)
ucase('straße')
lower('ÀÉÎ İ ΑΣ')
length(s)
char_length(s)
len(y)
length(k)
trim(s)
ltrim(s)
rtrim(s)
btrim(s)
trim(both ' p' from s)
trim(leading 'A' from s)
trim(trailing from s)
btrim(s, 'aA')
concat(s, 'x', n)
concat(s)
concat(k, s, p)
s || n
substring(s, 2)
substring(s, 2, 1)
substring(s, 0, 2)
substring(s, -2)
substring(s, -2, 1)
substring(s, -10, 9)
substring(s, 1, 0)
substring(s, 1, -1)
substr(s, 2, 100)
substring(s from 2 for 2)
substring(k, 1, 1)
left(s, 2)
right(s, 2)
left(s, 0)
right(s, -1)
replace(s, 'b', 'BB')
replace(s, 'a')
replace(s, '', 'x')
startswith(s, 'A')
endswith(s, 'c')
contains(s, 'b')
contains(s, '')
startswith(s, null)
lpad(s, 5, '*')
rpad(s, 2, '*')
lpad(s, 4)
year(t)
month(t)
day(t)
dayofmonth(ts)
quarter(t)
dayofyear(t)
dayofweek(t)
weekday(t)
weekofyear(t)
year(ts)
year(tn)
year(w)
month(w)
hour(ts)
minute(ts)
second(ts)
hour(tn)
hour(t)
hour('2020-01-01 10:11:12')
extract(year from ts)
extract(week from t)
extract(doy from t)
date(ts)
date(w)
to_date(w)
to_timestamp(w)
timestamp(t)
date_add(w, 1)
date_sub(ts, 5)
date_add(date'2020-01-01', k)
date_add(t, 2147483647)
add_months(t, 1)
datediff(t, '2020-01-01')
datediff(ts, w)
date_diff(tn, t)
date'2020-02-28' + 2
date'2020-03-01' - 1
k + date'2020-01-01'
w || ''
add_months(w, 1)
add_months(date'2020-01-31', k)
last_day(w)
date(w) + interval 1 day
date(w) + interval 2 weeks
date(w) - interval '1' month
date(w) + interval 1 year
date(w) + interval 5 hours
ts + interval 1 day
ts - interval 1 month
ts + interval 90 minutes
tn + interval 1 second
tn - interval 1 year
interval 1 day + date'2020-01-31'
date_trunc('year', ts)
date_trunc('QUARTER', ts)
date_trunc('mon', ts)
date_trunc('week', ts)
date_trunc('dd', ts)
date_trunc('hour', ts)
date_trunc('minute', ts)
date_trunc('second', ts)
date_trunc('millisecond', ts)
date_trunc('microsecond', ts)
date_trunc('nope', ts)
date_trunc('month', date(w))
date_trunc('month', w)
date_trunc('hour', tn)
trunc(t, 'year')
trunc(t, 'Q')
trunc(t, 'quarter')
trunc(w, 'MM')
trunc(ts, 'week')
trunc(t, 'day')
trunc(t, null)
date_format(ts, 'yyyy-MM-dd HH:mm:ss')
date_format(t, 'yyyy/MM')
date_format(w, "yyyyMMdd'T'HH")
date_format(tn, 'dd.MM.yyyy')
st.a
st.b = 'x'
ST.A + 1
st['a']
ar[0]
ar[k - k]
m['k']
m.j
m['nope']
size(ar)
size(m)
cardinality(ar)
array_contains(ar, 2)
cast(k as string)
cast(c as string)
cast(e as string)
cast(p as string)
cast(t as string)
cast(ts as string)
cast(tn as string)
cast(cast(s as binary) as string)
cast(s as binary)
cast(n as int)
cast(n as bigint)
cast(n as double)
cast(n as decimal(12,2))
cast(n as float)
try_cast(x as int)
try_cast(x as bigint)
try_cast(x as double)
try_cast(x as float)
try_cast(x as decimal(6,1))
try_cast(x as decimal(38,18))
try_cast(x as boolean)
try_cast(x as date)
try_cast(s as timestamp)
try_cast(w as date)
try_cast(l as int)
try_cast(i as tinyint)
try_cast(d as int)
try_cast(d as bigint)
try_cast(d as decimal(10,2))
try_cast(g as decimal(10,2))
try_cast(g as decimal(3,0))
try_cast(f as decimal(20,10))
try_cast(c as int)
try_cast(c as tinyint)
try_cast(e as decimal(10,2))
try_cast(c as decimal(5,1))
cast(g as int)
cast(c as int)
cast(c as double)
cast(e as double)
cast(e as float)
cast(l as double)
cast(l as float)
cast(g as float)
cast(p as int)
cast(p as double)
cast(p as decimal(5,2))
cast(k as boolean)
cast(d as boolean)
cast(c as boolean)
cast('yes' as boolean)
cast(' F ' as boolean)
cast(t as timestamp)
cast(t as timestamp_ntz)
cast(ts as date)
cast(tn as date)
cast(ts as timestamp_ntz)
cast(tn as timestamp)
cast(ts as bigint)
cast(ts as double)
cast(ts as decimal(20,6))
cast(k as timestamp)
cast(g as timestamp)
cast(w as timestamp)
cast(w as timestamp_ntz)
cast('2020-01-01 1:2:3.5' as timestamp)
cast('2020-01-01T10:00:00Z' as timestamp)
cast('2020-01-01 10:00:00-08:00' as timestamp)
cast('2020-01-01 10:00:00+5:30' as timestamp)
cast('2020-01-01 10:00:00.1234567' as timestamp)
cast('2020-01-01 10' as timestamp)
cast('2020-01-01 10:00:00+02:00' as timestamp_ntz)
cast('  2020-01-01  ' as date)
cast('2020-01-01 foo' as date)
cast('1e2' as decimal(5,1))
cast('1.005' as decimal(5,2))
cast('-1.005' as decimal(5,2))
cast('.5' as double)
cast('5.' as decimal(3,1))
cast('1d' as double)
cast('Infinity' as double)
cast('-inf' as float)
k::string
'5'::int + 1
double(n)
string(k)
decimal(k)
int('12')
'it''s'
"double ""quoted"""
'tab\tnew\\line'
'\u0041\101\q\%\_'
r'raw\n'
'a' 'b'
X'1F2'
x'00ff'
1.5
1.50BD
0.05
1e3
1.5e-3D
2F
.5
5.
12345678901234567890
9223372036854775808
-9223372036854775808
-2147483648
true and not false
null
1 = 1 = true
1 < 2 = true
i = k is null
not i = 1 and p
not (i = 1 or k = 3)
i > 0 and k / i > 1
i = 0 or k / i > 1
p and cast(x as int) = 1 and false
k > 0 and n > 0
coalesce(i, k / 0)
case when false then 1 / 0 else 2 end
i + cast(null as int)
(i = 1) = (k = -7)
1 + 1 = 2 or i = 1
date '2020-02-29' + 365
timestamp '2020-01-01 00:00:00' < current_timestamp()
current_date() > date'2020-01-01'
now() > ts
id in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
s in ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'Abc', null)
id % 2 = 0 and (s like 'a%' or k > 0) and not t is null
