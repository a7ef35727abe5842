"""Special functions of float64 blocks that the Triton language lacks or has only through a device library.

`arctan` and `erfc` follow Moshier's Cephes library, `ndtri` Wichura's algorithm AS 241 (Applied Statistics 37, 1988),
`expm1` and `log1p` Kahan (Higham, Accuracy and Stability of Numerical Algorithms, section 1.14).

Constants stand directly in expressions with a float64 block: a variable that holds only a number would be float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def log1p(x):
    """Return `log(1 + x)`, accurate to the last digits near zero too."""
    u = 1.0 + x
    d = u - 1.0
    far = tl.where(d == x, 1.0, x / d)  # exactly 1 where nothing was rounded off, and for infinity
    return tl.where(u == 1.0, x, tl.log(u) * far)


@triton.jit
def expm1(x):
    """Return `exp(x) − 1`, accurate to the last digits near zero too."""
    u = tl.exp(x)
    near = tl.where(u == 1.0, x, (u - 1.0) * (x / tl.log(u)))
    return tl.where(tl.abs(x) < 0.5, near, u - 1.0)


@triton.jit
def arctan(x):
    """Return the arc tangent: `x + x³ P(x²) / Q(x²)`, with the argument reduced below tan(π/8)."""
    a = tl.abs(x)
    large, middle = a > 2.414213562373095, a > 0.66
    y = (large.to(tl.float64) + middle.to(tl.float64)) * 0.7853981633974483
    a = tl.where(large, -1.0 / a, tl.where(middle, (a - 1.0) / (a + 1.0), a))
    s = a * a
    p = s * -8.750608600031904122785e-1 - 1.615753718733365076637e1
    p = p * s - 7.500855792314704667340e1
    p = p * s - 1.228866684490136173410e2
    p = p * s - 6.485021904942025371773e1
    q = s + 2.485846490142306297962e1
    q = q * s + 1.650270098316988542046e2
    q = q * s + 4.328810604912902668951e2
    q = q * s + 4.853903996359136964868e2
    q = q * s + 1.945506571482613964425e2
    y += a + a * s * p / q
    return tl.where(x < 0.0, -y, y)


@triton.jit
def arcsin(x):
    """Return the arc sine, NaN outside [−1, 1]."""
    return arctan(x / tl.sqrt((1.0 - x) * (1.0 + x)))


@triton.jit
def arctan2(y, x):
    """Return the angle of the point `(x, y)`, from −π to π; zeros have signs."""
    a, b = tl.abs(y), tl.abs(x)
    ratio = tl.where(a == b, tl.where(a == 0.0, 0.0, 1.0), a / b)  # both may be 0 or infinite
    angle = arctan(ratio)
    angle = tl.where(x.to(tl.int64, bitcast=True) < 0, 3.141592653589793 - angle, angle)
    angle = tl.where(y.to(tl.int64, bitcast=True) < 0, angle * -1.0, angle)
    return tl.where((x == x) & (y == y), angle, float("nan"))


@triton.jit
def hypot(x, y):
    """Return `√(x² + y²)` where the squares may leave the range of numbers too."""
    a, b = tl.abs(x), tl.abs(y)
    larger, smaller = tl.where(a > b, a, b), tl.where(a > b, b, a)
    ratio = tl.where(larger == 0.0, smaller, smaller / larger)  # both are 0, or the smaller is NaN
    far = larger * tl.sqrt(1.0 + ratio * ratio)
    return tl.where((a == float("inf")) | (b == float("inf")), float("inf"), far)


@triton.jit
def erfc(x):
    """Return `1 − erf(x)`: directly below 1, above as `exp(−x²) P(x) / Q(x)`, with other polynomials from 8 on."""
    a = tl.abs(x)
    p = a * 2.46196981473530512524e-10 + 5.64189564831068821977e-1
    p = p * a + 7.46321056442269912687e0
    p = p * a + 4.86371970985681366614e1
    p = p * a + 1.96520832956077098242e2
    p = p * a + 5.26445194995477358631e2
    p = p * a + 9.34528527171957607540e2
    p = p * a + 1.02755188689515710272e3
    p = p * a + 5.57535335369399327526e2
    q = a + 1.32281951154744992508e1
    q = q * a + 8.67072140885989742329e1
    q = q * a + 3.54937778887819891062e2
    q = q * a + 9.75708501743205489753e2
    q = q * a + 1.82390916687909736289e3
    q = q * a + 2.24633760818710981792e3
    q = q * a + 1.65666309194161350182e3
    q = q * a + 5.57535340817727675546e2
    r = a * 5.64189583547755073984e-1 + 1.27536670759978104416e0
    r = r * a + 5.01905042251180477414e0
    r = r * a + 6.16021097993053585195e0
    r = r * a + 7.40974269950448939160e0
    r = r * a + 2.97886665372100240670e0
    s = a + 2.26052863220117276590e0
    s = s * a + 9.39603524938001434673e0
    s = s * a + 1.20489539808096656605e1
    s = s * a + 1.70814450747565897222e1
    s = s * a + 9.60896809063285878198e0
    s = s * a + 3.36907645100081516050e0
    ratio = tl.where(a < 8.0, p / q, r / s)
    far = tl.where(a > 40.0, 0.0, tl.exp(-a * a) * ratio)
    return tl.where(a < 1.0, 1.0 - tl.erf(x), tl.where(x < 0.0, 2.0 - far, far))


@triton.jit
def ndtri(p):
    """Return the quantile function of the normal distribution (PPND16): ±infinity at 0 and 1, NaN outside."""
    centred = p - 0.5
    s = 0.180625 - centred * centred
    a = s * 2.5090809287301226727e3 + 3.3430575583588128105e4
    a = a * s + 6.7265770927008700853e4
    a = a * s + 4.5921953931549871457e4
    a = a * s + 1.3731693765509461125e4
    a = a * s + 1.9715909503065514427e3
    a = a * s + 1.3314166789178437745e2
    a = a * s + 3.3871328727963666080e0
    b = s * 5.2264952788528545610e3 + 2.8729085735721942674e4
    b = b * s + 3.9307895800092710610e4
    b = b * s + 2.1213794301586595867e4
    b = b * s + 5.3941960214247511077e3
    b = b * s + 6.8718700749205790830e2
    b = b * s + 4.2313330701600911252e1
    b = b * s + 1.0
    near = centred * a / b
    r = tl.sqrt(-tl.log(tl.where(centred < 0.0, p, 1.0 - p)))
    t = r - 1.6
    c = t * 7.74545014278341407640e-4 + 2.27238449892691845833e-2
    c = c * t + 2.41780725177450611770e-1
    c = c * t + 1.27045825245236838258e0
    c = c * t + 3.64784832476320460504e0
    c = c * t + 5.76949722146069140550e0
    c = c * t + 4.63033784615654529590e0
    c = c * t + 1.42343711074968357734e0
    d = t * 1.05075007164441684324e-9 + 5.47593808499534494600e-4
    d = d * t + 1.51986665636164571966e-2
    d = d * t + 1.48103976427480074590e-1
    d = d * t + 6.89767334985100004550e-1
    d = d * t + 1.67638483018380384940e0
    d = d * t + 2.05319162663775882187e0
    d = d * t + 1.0
    t = r - 5.0
    e = t * 2.01033439929228813265e-7 + 2.71155556874348757815e-5
    e = e * t + 1.24266094738807843860e-3
    e = e * t + 2.65321895265761230930e-2
    e = e * t + 2.96560571828504891230e-1
    e = e * t + 1.78482653991729133580e0
    e = e * t + 5.46378491116411436990e0
    e = e * t + 6.65790464350110377720e0
    f = t * 2.04426310338993978564e-15 + 1.42151175831644588870e-7
    f = f * t + 1.84631831751005468180e-5
    f = f * t + 7.86869131145613259100e-4
    f = f * t + 1.48753612908506148525e-2
    f = f * t + 1.36929880922735805310e-1
    f = f * t + 5.99832206555887937690e-1
    f = f * t + 1.0
    far = tl.where(r <= 5.0, c / d, e / f)
    far = tl.where(r > 40.0, r, far)  # infinity alone is so far: the smallest positive number has r = 27.3
    return tl.where(tl.abs(centred) <= 0.425, near, tl.where(centred < 0.0, -far, far))
