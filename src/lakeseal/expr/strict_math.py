"""Exponentials, logarithms and powers to the last bit that Java's StrictMath gives, which is what Spark calls.

StrictMath is defined by its algorithms (fdlibm): the steps below are those, so every machine computes the same. What
Python's `math` gives comes from the machine's own library, and its last bit may be another.
"""

from __future__ import annotations

import math
import struct

_LN2_HI, _LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LG = (
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01),
    *(1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01),
)
_EXP = (
    *(1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05),
    *(-1.65339022054652515390e-06, 4.13813679705723846039e-08),
)
_INV_LN2 = 1.44269504088896338700e00
_INV_LN10 = 4.34294481903251816668e-01
_LOG10_2_HI, _LOG10_2_LO = 3.01029995663611771306e-01, 3.69423907715893078616e-13
_POW = (
    *(5.99999999999994648725e-01, 4.28571428578550184252e-01, 3.33333329818377432918e-01),
    *(2.72728123808534006489e-01, 2.30660745775561754067e-01, 2.06975017800338417784e-01),
)
_BASE = (1.0, 1.5)
_BASE_HI, _BASE_LO = (0.0, 5.84962487220764160156e-01), (0.0, 1.35003920212974897128e-08)
_LG2, _LG2_HI, _LG2_LO = 6.93147180559945286227e-01, 6.93147182464599609375e-01, -1.90465429995776804525e-09
_CP, _CP_HI, _CP_LO = 9.61796693925975554329e-01, 9.61796700954437255859e-01, -7.02846165095275826516e-09
_INV_LN2_HI, _INV_LN2_LO = 1.44269502162933349609e00, 1.92596299112661746887e-08
_OVERFLOW = 8.0085662595372944372e-17
_ONE_HIGH, _INFINITE_HIGH = 0x3FF00000, 0x7FF00000


def _words(value: float) -> tuple[int, int]:
    """The upper half, signed, and the lower half of a double."""
    high, low = struct.unpack(">iI", struct.pack(">d", value))
    return high, low


def _of_words(high: int, low: int) -> float:
    value: float = struct.unpack(">d", struct.pack(">II", high & 0xFFFFFFFF, low))[0]
    return value


def _with_high(value: float, high: int) -> float:
    return _of_words(high, _words(value)[1])


def _upper_half(value: float) -> float:
    return _of_words(_words(value)[0], 0)


def _polynomial(x: float, terms: tuple[float, ...]) -> float:
    """`a + x * (b + x * (c + ...))`."""
    result = terms[-1]
    for term in terms[-2::-1]:
        result = term + x * result
    return result


def exp(x: float) -> float:
    if math.isnan(x) or x == math.inf:
        return x
    if x > 7.09782712893383973096e02:
        return math.inf
    if x < -7.45133219101941108420e02:
        return 0.0
    high = _words(x)[0]
    negative, size = high < 0, high & 0x7FFFFFFF
    power, upper, lower = 0, 0.0, 0.0
    if size > 0x3FD62E42:
        if size < 0x3FF0A2B2:
            power = -1 if negative else 1
            upper, lower = x - power * _LN2_HI, power * _LN2_LO
        else:
            power = int(_INV_LN2 * x + (-0.5 if negative else 0.5))
            upper, lower = x - power * _LN2_HI, power * _LN2_LO
        x = upper - lower
    elif size < 0x3E300000:
        return 1.0 + x
    square = x * x
    rest = x - square * _polynomial(square, _EXP)
    if power == 0:
        return 1.0 - ((x * rest) / (rest - 2.0) - x)
    value = 1.0 - ((lower - (x * rest) / (2.0 - rest)) - upper)
    if power >= -1021:
        return math.ldexp(value, power)
    return math.ldexp(value, power + 1000) * 9.33263618503218878990e-302


def log(x: float) -> float:
    """Of what is above 0; infinity and NaN are what they are."""
    if math.isnan(x):
        return x
    high, _ = _words(x)
    power = 0
    if high < 0x00100000:
        power, x = -54, x * 18014398509481984.0
        high, _ = _words(x)
    if high >= _INFINITE_HIGH:
        return x
    power += (high >> 20) - 1023
    high &= 0x000FFFFF
    above = (high + 0x95F64) & 0x100000
    x = _with_high(x, high | (above ^ _ONE_HIGH))
    power += above >> 20
    part = x - 1.0
    times = float(power)
    if (0x000FFFFF & (2 + high)) < 3:
        if part == 0:
            return times * _LN2_HI + times * _LN2_LO if power else 0.0
        rest = part * part * (0.5 - 0.33333333333333333 * part)
        return times * _LN2_HI - ((rest - times * _LN2_LO) - part) if power else part - rest
    ratio = part / (2.0 + part)
    square = ratio * ratio
    fourth = square * square
    even = fourth * (_LG[1] + fourth * (_LG[3] + fourth * _LG[5]))
    odd = square * (_LG[0] + fourth * (_LG[2] + fourth * (_LG[4] + fourth * _LG[6])))
    rest = odd + even
    if ((high - 0x6147A) | (0x6B851 - high)) > 0:
        half = 0.5 * part * part
        if not power:
            return part - (half - ratio * (half + rest))
        return times * _LN2_HI - ((half - (ratio * (half + rest) + times * _LN2_LO)) - part)
    if not power:
        return part - ratio * (part - rest)
    return times * _LN2_HI - ((ratio * (part - rest) - times * _LN2_LO) - part)


def log10(x: float) -> float:
    """Of what is above 0."""
    if math.isnan(x):
        return x
    high, _ = _words(x)
    power = 0
    if high < 0x00100000:
        power, x = -54, x * 18014398509481984.0
        high, _ = _words(x)
    if high >= _INFINITE_HIGH:
        return x
    power += (high >> 20) - 1023
    below = 1 if power < 0 else 0
    x = _with_high(x, (high & 0x000FFFFF) | ((0x3FF - below) << 20))
    times = float(power + below)
    return (times * _LOG10_2_LO + _INV_LN10 * log(x)) + times * _LOG10_2_HI


def log1p(x: float) -> float:
    """Of what is above -1."""
    if math.isnan(x):
        return x
    high, _ = _words(x)
    size = high & 0x7FFFFFFF
    power, part, upper, lost = 1, 0.0, 1, 0.0
    if high < 0x3FDA827A:
        if size < 0x3E200000:
            return x if size < 0x3C900000 else x - x * x * 0.5
        if high > 0 or high <= 0xBFD2BEC3 - (1 << 32):
            power, part = 0, x
    if high >= _INFINITE_HIGH:
        return x
    if power:
        whole = 1.0 + x if high < 0x43400000 else x
        upper, _ = _words(whole)
        power = (upper >> 20) - 1023
        if high < 0x43400000:
            lost = (1.0 - (whole - x) if power > 0 else x - (whole - 1.0)) / whole
        upper &= 0x000FFFFF
        if upper < 0x6A09E:
            whole = _with_high(whole, upper | _ONE_HIGH)
        else:
            power += 1
            whole = _with_high(whole, upper | 0x3FE00000)
            upper = (0x00100000 - upper) >> 2
        part = whole - 1.0
    half = 0.5 * part * part
    times = float(power)
    if upper == 0:
        if part == 0:
            return times * _LN2_HI + (lost + times * _LN2_LO) if power else 0.0
        rest = half * (1.0 - 0.66666666666666666 * part)
        return times * _LN2_HI - ((rest - (times * _LN2_LO + lost)) - part) if power else part - rest
    ratio = part / (2.0 + part)
    square = ratio * ratio
    rest = square * _polynomial(square, _LG)
    if not power:
        return part - (half - ratio * (half + rest))
    return times * _LN2_HI - ((half - (ratio * (half + rest) + (times * _LN2_LO + lost))) - part)


def power(x: float, y: float) -> float:
    if y == 0:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return math.nan
    size = abs(x)
    if math.isinf(y):
        if size == 1:
            return math.nan
        return math.inf if (size > 1) == (y > 0) else 0.0
    if y == 1:
        return x
    if y == 2:
        return x * x
    if y == 0.5 and x >= 0:
        return math.sqrt(x + 0.0)
    is_whole = y == math.floor(y)
    is_odd = is_whole and math.fmod(y, 2) != 0
    if y == -1 and x != 0:
        return 1.0 / x
    if size in (0.0, 1.0) or math.isinf(size):
        special = size
        if y < 0:
            special = math.inf if size == 0 else 1.0 / size
        if x > 0 or (x == 0 and math.copysign(1.0, x) > 0):
            return special
        if size == 1 and not is_whole:
            return math.nan
        return -special if is_odd else special
    if x < 0 and not is_whole:
        return math.nan
    sign = -1.0 if x < 0 and is_odd else 1.0
    return sign * _positive_power(size, y)


def _positive_power(x: float, y: float) -> float:
    high, _ = _words(x)
    if abs(y) > 2147483648.0 * (1 + 2**-20 - 2**-52):
        if high < 0x3FEFFFFF:
            return math.inf if y < 0 else 0.0
        if high > _ONE_HIGH:
            return math.inf if y > 0 else 0.0
        upper, lower = _log2_near_one(x)
    else:
        upper, lower = _log2(x)
    y_upper = _upper_half(y)
    product_low = (y - y_upper) * upper + y * lower
    product = y_upper * upper
    z = product_low + product
    if math.isnan(z) or math.isinf(z):
        return math.inf if z > 0 else 0.0
    j, i = _words(z)
    if j >= 0x40900000:
        if ((j - 0x40900000) | i) != 0 or product_low + _OVERFLOW > z - product:
            return math.inf
    elif (j & 0x7FFFFFFF) >= 0x4090CC00 and (((j - (0xC090CC00 - (1 << 32))) | i) != 0 or product_low <= z - product):
        return 0.0
    return _two_to(product, product_low, j)


def _log2_near_one(x: float) -> tuple[float, float]:
    t = x - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u, v = _INV_LN2_HI * t, t * _INV_LN2_LO - w * _INV_LN2
    upper = _upper_half(u + v)
    return upper, v - (upper - u)


def _log2(x: float) -> tuple[float, float]:
    """In two parts."""
    n = 0
    high, _ = _words(x)
    if high < 0x00100000:
        x, n = x * 9007199254740992.0, -53
        high, _ = _words(x)
    n += (high >> 20) - 0x3FF
    j = high & 0x000FFFFF
    high = j | _ONE_HIGH
    k = 0
    if 0x3988E < j < 0xBB67A:
        k = 1
    elif j >= 0xBB67A:
        n += 1
        high -= 0x00100000
    x = _with_high(x, high)
    u, v = x - _BASE[k], 1.0 / (x + _BASE[k])
    ss = u * v
    s_h = _upper_half(ss)
    t_h = _of_words(((high >> 1) | 0x20000000) + 0x00080000 + (k << 18), 0)
    t_l = x - (t_h - _BASE[k])
    s_l = v * ((u - s_h * t_h) - s_h * t_l)
    s2 = ss * ss
    r = s2 * s2 * _polynomial(s2, _POW)
    r += s_l * (s_h + ss)
    s2 = s_h * s_h
    t_h = _upper_half(3.0 + s2 + r)
    t_l = r - ((t_h - 3.0) - s2)
    u, v = s_h * t_h, s_l * t_h + t_l * ss
    p_h = _upper_half(u + v)
    p_l = v - (p_h - u)
    z_h, z_l = _CP_HI * p_h, _CP_LO * p_h + p_l * _CP + _BASE_LO[k]
    t = float(n)
    upper = _upper_half(((z_h + z_l) + _BASE_HI[k]) + t)
    return upper, z_l - (((upper - t) - _BASE_HI[k]) - z_h)


def _two_to(p_h: float, p_l: float, j: int) -> float:
    """Two to the sum of both, of which `j` is the upper half."""
    i = j & 0x7FFFFFFF
    n = 0
    if i > 0x3FE00000:
        k = (i >> 20) - 0x3FF
        n = j + (0x00100000 >> (k + 1))
        k = ((n & 0x7FFFFFFF) >> 20) - 0x3FF
        t = _of_words(n & ~(0x000FFFFF >> k), 0)
        n = ((n & 0x000FFFFF) | 0x00100000) >> (20 - k)
        if j < 0:
            n = -n
        p_h -= t
    t = _upper_half(p_l + p_h)
    u, v = t * _LG2_HI, (p_l - (t - p_h)) * _LG2 + t * _LG2_LO
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * _polynomial(t, _EXP)
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    return math.ldexp(1.0 - (r - z), n)
