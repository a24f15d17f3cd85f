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
instr(s, 'b')
instr(s, '')
locate('b', s)
locate('b', s, k)
locate('', s, 2)
position('b' in s)
position('b', s, 2)
ascii(s)
chr(l)
char(k)
initcap('hello wORLD  x-y o''neil')
initcap(n)
repeat(s, 2)
repeat(s, k % 5)
space(b & 7)
translate(s, 'abcA', 'xy')
overlay(s placing 'ZZ' from 2)
overlay(s placing 'ZZ' from 2 for 0)
overlay(s, 'ZZ', k % 7, 1)
split_part('a.b.c', '.', 2)
split_part(s, '_', -1)
split_part('abc', '', 1)
substring_index('a.b.c.d', '.', k % 4)
substring_index('aaaa', 'aa', 2)
substring_index('aaaa', 'aa', -2)
substring_index(s, 'b', -1)
substring_index('www.apache.org', '.', -2)
levenshtein(s, 'abc')
levenshtein(s, 'xyz', 2)
soundex(s)
soundex('Miller')
soundex('Ashcraft')
soundex('Tymczak')
base64(y)
base64(s)
unbase64('YWJj')
unbase64('YW Jj')
hex(i)
hex(l)
hex(s)
hex(y)
unhex('4')
unhex('zz')
unhex(n)
encode(s, 'UTF-8')
decode(encode(s, 'utf-8'), 'UTF-8')
mask(n)
mask('AbCD123-@$#')
mask('AbCD123-@$#', 'Q', 'q', 'd', 'o')
mask('AbCD123-@$#', null, 'q')
find_in_set('ab', 'abc,b,ab,c,def')
find_in_set('', 'a,,b')
find_in_set('a,b', 'a,b')
md5(s)
md5(y)
sha(s)
sha1(y)
sha2(s, 256)
sha2(s, 0)
sha2(s, 224)
sha2(s, 384)
sha2(s, 512)
sha2(s, 1)
crc32(s)
url_encode(concat(s, '*-._~/?=&+'))
url_decode('a%20b+c%C3%9F')
luhn_check('79927398713')
luhn_check(n)
bit_length(s)
octet_length(s)
octet_length(y)
lpad(s, 5, 'xy')
rpad(s, k % 9, 'xy')
lpad(s, 3, '')
substring(s, k % 4, 2)
substr(s, -2, k % 3)
substring(y, 2, 1)
substring(y, 1)
sqrt(d)
sqrt(abs(g))
degrees(g)
radians(g)
sign(d)
signum(i)
rint(g)
rint(2.5D)
rint(-0.4D)
nanvl(d, 7)
nanvl(d, g)
factorial(k)
factorial(20)
factorial(21)
bin(l)
bin(b)
conv('100', 2, 10)
conv(n, 10, 16)
conv(-10, 16, -10)
conv('-1', 10, 16)
conv('zz', 36, 10)
conv('9z', 10, 16)
conv('', 10, 16)
conv('18446744073709551615', 10, -10)
width_bucket(g, -3, 3, 5)
width_bucket(g, 3, -3, 5)
width_bucket(5.3, 0.2, 10.6, 5)
width_bucket(i, 0, 10, 0)
i << 2
i >> 1
i >>> 1
l << 65
l >>> 60
shiftleft(b, 3)
shiftright(l, k)
shiftrightunsigned(i, 33)
1 + i % 7 << 2 & 15
bit_count(i)
bit_count(l)
bit_count(b)
bit_count(p)
bit_get(l, 3)
getbit(b, 7)
bround(c, 1)
bround(c)
bround(2.5)
bround(i)
bround(e, 3)
pi()
e()
format_string('%s-%d', s, i)
format_string('%5d|%-5d|%05d', i, k, id)
format_string('%s %s', p, null)
printf('%s%%', l)
format_string('no places')
concat_ws(',', s, n, x)
concat_ws('-', 'a', null, 'b')
concat_ws(null, 'a')
concat_ws(',', split('a-b', '-'), 'c')
concat_ws('/', i, l)
elt(2, s, n)
elt(1, 'a', 'b')
elt(cast(null as int), 'a')
regexp_replace(s, 'b', 'B')
regexp_replace('100-200', '(\\d+)', 'num')
regexp_replace('abc', '(a)(b)?', '$2$1-')
regexp_replace('abcabc', 'x*', '-')
regexp_replace('axb', 'x*', '-')
regexp_extract('100-200', '(\\d+)-(\\d+)', 1)
regexp_extract('100-200', '(\\d+)-(\\d+)', 2)
regexp_extract(n, '(\\d+)', 0)
regexp_extract(s, '(x)(y)?', 1)
regexp_extract('aaa', 'a+?', 0)
regexp_extract_all('1a 2b 14m', '(\\d+)([a-z]+)', 2)
regexp_extract_all(s, '[a-z]', 0)
regexp_count(s, '[a-z]')
regexp_substr(n, '[0-9]+')
regexp_instr(s, 'b|y')
split(s, '_')
split('oneAtwoBthreeC', '[ABC]')
split('oneAtwoBthreeC', '[ABC]', 2)
split('a,b,,', ',')
split('a,b,,', ',', 0)
hash(i)
hash(l, s)
hash(b, h, f, d, c, e)
hash(s, n, y, p, t, ts, tn)
hash(null, i)
xxhash64(i)
xxhash64(l, s)
xxhash64(b, h, f, d, c, e)
xxhash64(s, n, y, p, t, ts, tn)
xxhash64(repeat(coalesce(s, 'x'), 40))
xxhash64('0123456789012345678901234567890123456789')
hash('0123456789012345678901234567890123456789x')
try_add(i, 1)
try_add(l, l)
try_add(b, 1Y)
try_subtract(i, k)
try_multiply(l, 3)
try_divide(i, k - 3)
try_divide(3, 0)
try_add(2147483647, 1)
try_add(d, g)
try_to_timestamp(w)
try_to_date(w)
unix_timestamp(ts)
unix_timestamp(t)
unix_timestamp('2020-01-31 12:34:56')
unix_timestamp('2020/01/31', 'yyyy/MM/dd')
to_unix_timestamp('2020-01-31 12', 'yyyy-MM-dd HH')
to_date('31/01/2020', 'dd/MM/yyyy')
to_timestamp('20200131 123456', 'yyyyMMdd HHmmss')
to_timestamp('2020-01-31T12:34', 'yyyy-MM-dd\'T\'HH:mm')
from_unixtime(k)
from_unixtime(1580474096, 'yyyy/M/d h:mm a')
date_format(ts, 'EEE, d MMM yyyy')
date_format(ts, 'EEEE MMMM yy')
date_format(t, 'D DDD Q')
date_format(ts, 'HH:mm:ss.SSS')
date_format(tn, 'yyyy-MM-dd\'T\'HH:mm:ss.SSSSSS')
date_part('year', t)
date_part('SECOND', ts)
date_part('seconds', tn)
extract(second from ts)
extract(week from t)
datepart('doy', t)
make_date(2020, 2, 29)
make_date(k + 2000, 1, 31)
make_timestamp(2020, 1, 31, 12, 34, 56.789)
make_timestamp(2020, 1, 31, 12, 34, 60)
make_timestamp_ntz(2020, 1, 31, 12, 34, 5)
date_from_unix_date(k)
unix_date(t)
unix_seconds(ts)
unix_millis(ts)
unix_micros(ts)
timestamp_seconds(k)
timestamp_millis(k)
timestamp_micros(l)
months_between(ts, timestamp '2020-01-31 00:00:00')
months_between(t, date '2024-02-29')
months_between(ts, t)
next_day(t, 'Mon')
next_day(t, 'sunday')
dayname(t)
monthname(t)
from_utc_timestamp(timestamp '2020-07-01 12:00:00', 'America/New_York')
to_utc_timestamp(timestamp '2020-03-08 02:30:00', 'America/New_York')
to_utc_timestamp(timestamp '2020-11-01 01:30:00', 'America/New_York')
dateadd(MONTH, 1, ts)
dateadd(YEAR, k, timestamp '2020-02-29 00:00:00')
timestampadd(HOUR, -5, ts)
timestampadd(QUARTER, 1, tn)
date_add(WEEK, 2, ts)
timestampdiff(MONTH, timestamp '2020-01-31 00:00:00', ts)
timestampdiff(DAY, ts, timestamp '2020-01-31 00:00:00')
datediff(HOUR, ts, timestamp '2000-01-01 00:00:00')
timestampdiff(YEAR, t, ts)
timestampdiff(QUARTER, t, ts)
timestampdiff(SECOND, ts, tn)
array(i, k)
array(1, 2L)
array(s, 'x', null)
map('a', i, 'b', k)
map(1, s)
named_struct('a', i, 'b', s)
named_struct('a', i, 'b', s).b
element_at(ar, 1)
element_at(ar, -1)
try_element_at(ar, 3)
try_element_at(ar, -3)
element_at(m, 'k')
element_at(m, s)
get(ar, 0)
get(ar, k)
map_keys(m)
map_values(m)
map_entries(m)
map_contains_key(m, 'k')
map_from_arrays(array('a', 'b'), array(i, k))
map_concat(map('a', 1), map('b', 2))
array_position(ar, 2)
array_position(ar, k)
array_remove(ar, 2)
array_append(ar, 3)
array_append(ar, i)
array_prepend(ar, 3)
array_contains(ar, i)
array_contains(array(d, g), d)
array_max(ar)
array_min(ar)
array_max(array(d, g))
array_min(array(d, g))
array_distinct(array(1, 2, 1, null, null))
array_distinct(array(d, 0.0D, g))
array_sort(ar)
array_compact(ar)
array_size(ar)
array_join(array(s, n, null), '-')
array_join(array(s, n, null), '-', '?')
array_union(ar, array(1, 2, null))
array_intersect(ar, array(1, 2, null))
array_except(ar, array(1, 2, null))
arrays_overlap(ar, array(1, 2))
arrays_overlap(ar, array(1, null))
array_repeat(i, 2)
array_repeat(s, -1)
slice(ar, 1, 1)
slice(ar, -2, 2)
slice(ar, 5, 1)
sort_array(ar)
sort_array(ar, false)
reverse(ar)
reverse(s)
flatten(array(ar, array(1)))
flatten(array(array(1, 2), array(3)))
sequence(1, 5)
sequence(5, 1)
sequence(1, 10, 3)
sequence(k, k)
concat(ar, array(1, 2))
str_to_map('a:1,b:2,c')
str_to_map('a=1&b=2', '&', '=')
regexp_substr(s, 'q*')
regexp_substr(s, '')
try_subtract(null, i)
try_divide(d, null)
try_mod(5, null)
timediff(DAY, t, date'2024-02-29')
timediff(HOUR, ts, tn)
array_size(null)
zeroifnull(i)
zeroifnull(c)
zeroifnull(null)
nullifzero(d)
nullifzero(b)
nullifzero(null)
typeof(c)
typeof(st)
typeof(null)
contains(y, X'62')
startswith(y, X'')
endswith(y, y)
transform(ar, x -> x + k)
transform(ar, (x, n) -> x * n)
transform(ar, x -> transform(ar, y -> coalesce(x, 0) + coalesce(y, 0) + id))
transform(ar, AR -> Ar is null)
transform(array('b', 'a', s), x -> concat(x, s))
transform(array(1.5D, double('NaN'), d), x -> x > d)
filter(ar, x -> x > 1)
filter(ar, (x, n) -> n > 0 and x is not null)
filter(array(t, null, date'2024-01-01'), x -> x >= date'2020-01-01')
exists(ar, x -> x > 6)
exists(ar, x -> x is null)
exists(ar, x -> 10 / x > 2)
forall(ar, x -> x > 1)
forall(ar, x -> x between 1 and k)
aggregate(ar, 0, (sum, x) -> sum + coalesce(x, 0))
aggregate(ar, 0, (sum, x) -> sum + x, sum -> sum * 10 + k)
reduce(array('b', 'a', s), '', (sum, x) -> concat(sum, coalesce(x, '-')))
aggregate(filter(ar, x -> x is not null), named_struct('n', 0, 'm', 1), (a, x) -> named_struct('n', a.n + x, 'm', a.m * x), a -> a.n + a.m)
zip_with(ar, array(1, 2, 3), (x, y) -> x * 10 + y)
zip_with(ar, transform(ar, x -> cast(x as string)), (x, y) -> concat(y, x))
map_filter(m, (k, v) -> v > 1)
transform_values(m, (k, v) -> concat(k, '=', v))
transform_keys(m, (a, v) -> upper(a))
size(filter(split(s, ' '), x -> x <> ''))
exists(array(st), x -> x.a > 3)
transform(array(st), st -> st.b)
struct(i, k + 1, s as name, st.a)
ar = array(1, 2)
ar <> array(3)
array(d, 1D) = array(double('NaN'), 1D)
st = named_struct('a', 1, 'b', 'x')
array(null, 1) = array(null, 1)
m[s]
m[concat('k', '')]
contains(s, substr(s, 2))
startswith(s, n)
endswith(concat(s, n), n)
replace(s, n, x)
replace(s, 'a', n)
left(s, k)
right(s, k)
right(s, i)
lpad(y, 3, X'6162')
rpad(y, 4)
ceil(c, 1)
floor(c, 1)
ceil(e, 3)
floor(k, 0)
negative(k)
positive(c)
c % 3
c % 0.7BD
e % nullif(c, 0)
pmod(c, 3)
pmod(c, -7)
c div 2
e div 3.5BD
e div 1
format_number(c, 1)
format_number(e, 4)
format_number(k, 0)
format_number(l, -1)
format_number(c, 0)
to_binary('6162', 'hex')
to_binary(s, 'utf-8')
try_to_binary(s)
array_join(ar, '-')
array_join(ar, '-', 'none')
array_join(array(p, q), ',')
array_insert(ar, 1, 9)
array_insert(ar, 5, k)
array_insert(ar, -1, 9)
array_insert(ar, -5, 7)
map_from_entries(array(struct('a', 1), struct('b', 2)))
s like any ('a%', '%y%')
s like all ('%a%', '%')
s not like any ('a%', '%y%')
s not like all ('a%', '%y%')
s like any ('a%', null)
s ilike any ('A%')
ts + interval 1 day 2 hours
ts - interval 1 hour 30 minutes 5 seconds
t + interval 1 year 2 months
t + interval 2 days 3 hours
ts + interval 250 milliseconds
extract(hrs from ts)
extract(mon from t)
extract('days', ts)
make_timestamp(2024, 3, 10, 2, 30, 1.5, 'America/New_York')
make_timestamp(2024, 11, 3, 1, 30, 1.5, 'America/New_York')
make_timestamp_ltz(2024, 3, 10, 2, 30, 1.5)
to_timestamp_ntz('2024-01-02 03:04:05')
to_timestamp_ltz('2024-01-02 03:04', 'yyyy-MM-dd HH:mm')
to_timestamp_ntz('2024-01-02', 'yyyy-MM-dd')
try_to_date('2024-13-01', 'yyyy-MM-dd')
try_to_timestamp('2024-02-29 12', 'yyyy-MM-dd HH')
to_char(t, 'yyyy/MM')
to_varchar(ts, 'HH:mm')
exp(g)
ln(g)
log(g)
log(2, g)
log(d, g)
log2(l)
log10(k)
log1p(g)
power(g, 2.5)
pow(k, -3)
pow(d, g)
ts - timestamp'2020-01-01 00:00:00' > interval 10 days
ts - t > interval 1 hour
tn - timestamp_ntz'2020-01-01' between interval 0 days and interval 400 days
t - date'2020-01-01' > interval 30 days
interval 26 hours = interval 1 day 2 hours
interval 1 day - interval 90 minutes < interval 23 hours
extract(day from ts - timestamp'2020-01-01')
extract(hour from ts - timestamp'2020-01-01')
date_part('minute', ts - t)
extract(second from timestamp'1960-01-01 00:00:01.25' - timestamp'2020-01-01')
coalesce(ts - timestamp'2020-01-01', interval 1 day) > interval 0 seconds
case when ts - t > interval 12 hours then 'pm' else 'am' end
to_number('454', '999')
to_number('454.00', '000.00')
to_number('$78.12', '$99.99')
to_number('-12,454.8', 'S99,999.9')
try_to_number(trim(n), '9999999999')
try_to_number(trim(n), 'S9999999999')
try_to_number(x, '99D99')
try_to_number(x, 'S9.9')
try_to_number('1,234', '9G999')
try_to_number('1234', '9,999')
try_to_number('12,34', '99,999')
try_to_number(',234', '9,999')
try_to_number('234', '9,999')
try_to_number('0,234', '0,999')
try_to_number('+1', 'MI9')
try_to_number('-1', 'MI9')
try_to_number('.5', '9.9')
try_to_number('5.', '9.9')
try_to_number('', '9')
try_to_number('-', 'S9')
try_to_number('$', '$9')
try_to_number('007', '999')
try_to_number('07', '000')
t + interval 1 week 2 days
t - interval 2 days 1 week
ts + interval 1 week 2 days
t + interval 1 week 2 hours
cast(1 div (i - i) as decimal(5,0)) % nullif(c, c)
pmod(c / 0.0, nullif(c, c))
(c / 0.0) div nullif(c, c)
zip_with(nullif(ar, ar), array(1 div (i - i)), (x, y) -> y)
zip_with(if(k > 0, ar, null), array(10 div (abs(k) + k)), (x, y) -> y)
