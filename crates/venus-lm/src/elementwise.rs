//! What happens between the products: norms, softmax, the gated unit, and their derivatives.
//!
//! Each function is plain Rust over fixed lanes, compiled twice: once for AVX2 and FMA, once for any processor. Sums run
//! over 8 lanes in an order that depends on the row's length only.

use crate::kernel::Isa;

const LANES: usize = 8;

/// Compiles `$body::<FMA>` for both instruction sets and picks one at run time.
macro_rules! for_each_isa {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $ret:ty)? = $body:ident) => {
        $(#[$doc])*
        pub(crate) fn $name(isa: Isa, $($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) $(-> $ret)? {
                $body::<true>($($arg),*)
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: both are only made where AVX2 and FMA were found.
                Isa::Avx512 | Isa::Avx2 => unsafe { avx2($($arg),*) },
                Isa::Portable => $body::<false>($($arg),*),
            }
        }
    };
}

for_each_isa! {
    /// `out = x / rms(x) * weight`; returns `1 / rms(x)`.
    fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) -> f32 = rms_norm_body
}
for_each_isa! {
    /// [`rms_norm`] in place.
    fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) -> () = rms_norm_in_place_body
}
for_each_isa! {
    /// Adds the derivatives of a loss with respect to the norm's input and weight, given that of its output.
    fn rms_norm_backward(x: &[f32], weight: &[f32], eps: f32, d_out: &[f32], dx: &mut [f32], d_weight: &mut [f32]) -> ()
        = rms_norm_backward_body
}
for_each_isa! {
    /// Replaces scores by `exp(score - max)`; returns the maximum and the sum of the exponentials.
    fn exp_scores(row: &mut [f32]) -> (f32, f32) = exp_scores_body
}
for_each_isa! {
    /// Replaces each score by `exp(score * scale - shift)`.
    fn exp_shifted(row: &mut [f32], scale: f32, shift: f32) -> () = exp_shifted_body
}
for_each_isa! {
    /// `out = silu(gate) * up` for a row `gate_up` that holds both halves.
    fn swiglu(gate_up: &[f32], out: &mut [f32]) -> () = swiglu_body
}
for_each_isa! {
    /// `d_gate_up`, the derivative with respect to [`swiglu`]'s input, given that of its output.
    fn swiglu_backward(gate_up: &[f32], d_out: &[f32], d_gate_up: &mut [f32]) -> () = swiglu_backward_body
}
for_each_isa! {
    /// Turns the pairs `(x[i], x[i + half])` of one head by the angles whose cosines and then sines are given; backwards
    /// if `sign` is -1.
    fn rotate(head: &mut [f32], cos_sin: &[f32], sign: f32) -> () = rotate_body
}
for_each_isa! {
    /// The sum of products.
    fn dot(a: &[f32], b: &[f32]) -> f32 = dot_body
}
for_each_isa! {
    /// `out = x * factor`.
    fn scaled(x: &[f32], factor: f32, out: &mut [f32]) -> () = scaled_body
}
for_each_isa! {
    /// `out += x`.
    fn add(x: &[f32], out: &mut [f32]) -> () = add_body
}
for_each_isa! {
    /// Attention's softmax, backward: `d_p = p * (d_p - delta) * scale`.
    fn softmax_backward(p: &[f32], d_p: &mut [f32], delta: f32, scale: f32) -> () = softmax_backward_body
}

#[inline(always)]
fn mul_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    // Without the instruction `mul_add` is a slow library call.
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn sum_lanes(lanes: [f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[inline(always)]
fn dot_body<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let b = &b[..a.len()];
    let ((a8, a_rest), (b8, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [[0.0f32; LANES]; 2];
    for (i, (a, b)) in a8.iter().zip(b8).enumerate() {
        for lane in 0..LANES {
            sums[i & 1][lane] = mul_add::<FMA>(a[lane], b[lane], sums[i & 1][lane]);
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[0][lane] = mul_add::<FMA>(*a, *b, sums[0][lane]);
    }
    let mut total = [0.0f32; LANES];
    for lane in 0..LANES {
        total[lane] = sums[0][lane] + sums[1][lane];
    }
    sum_lanes(total)
}

#[inline(always)]
fn inverse_rms<const FMA: bool>(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot_body::<FMA>(x, x) / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn rms_norm_body<const FMA: bool>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) -> f32 {
    let inverse = inverse_rms::<FMA>(x, eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * inverse * weight;
    }
    inverse
}

#[inline(always)]
fn rms_norm_in_place_body<const FMA: bool>(x: &mut [f32], weight: &[f32], eps: f32) {
    let inverse = inverse_rms::<FMA>(x, eps);
    for (x, weight) in x.iter_mut().zip(weight) {
        *x = *x * inverse * weight;
    }
}

#[inline(always)]
fn rms_norm_backward_body<const FMA: bool>(
    x: &[f32],
    weight: &[f32],
    eps: f32,
    d_out: &[f32],
    dx: &mut [f32],
    d_weight: &mut [f32],
) {
    let inverse = inverse_rms::<FMA>(x, eps);
    let (mut lanes, width) = ([0.0f32; LANES], x.len());
    for (i, ((x, weight), d_out)) in x.iter().zip(weight).zip(d_out).enumerate() {
        lanes[i % LANES] += x * weight * d_out;
    }
    let along = sum_lanes(lanes) * inverse * inverse * inverse / width as f32;
    for i in 0..width {
        d_weight[i] += d_out[i] * x[i] * inverse;
        dx[i] += d_out[i] * weight[i] * inverse - x[i] * along;
    }
}

/// `exp(x)` to about 1e-7 relative, for `x` in -87..88; outside it stays at the ends.
#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    /// 1.5 * 2^23: adding it rounds to a whole number that then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = mul_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, the first exact in few bits (Cody and Waite).
    let r = mul_add::<FMA>(n, -0.693_359_4, x);
    let r = mul_add::<FMA>(n, 2.121_944_4e-4, r);
    // Cephes expf.
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        p = mul_add::<FMA>(p, r, coefficient);
    }
    let value = mul_add::<FMA>(p, r * r, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3F80_0000));
    value * power
}

#[inline(always)]
fn exp_scores_body<const FMA: bool>(row: &mut [f32]) -> (f32, f32) {
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            maxima[lane] = if chunk[lane] > maxima[lane] { chunk[lane] } else { maxima[lane] };
        }
    }
    let max = maxima.iter().chain(rest).fold(f32::NEG_INFINITY, |max, x| max.max(*x));
    let mut sums = [0.0f32; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            chunk[lane] = exp::<FMA>(chunk[lane] - max);
            sums[lane] += chunk[lane];
        }
    }
    for (x, sum) in rest.iter_mut().zip(&mut sums) {
        *x = exp::<FMA>(*x - max);
        *sum += *x;
    }
    (max, sum_lanes(sums))
}

#[inline(always)]
fn exp_shifted_body<const FMA: bool>(row: &mut [f32], scale: f32, shift: f32) {
    for x in row {
        *x = exp::<FMA>(mul_add::<FMA>(*x, scale, -shift));
    }
}

#[inline(always)]
fn swiglu_body<const FMA: bool>(gate_up: &[f32], out: &mut [f32]) {
    let (gate, up) = gate_up.split_at(out.len());
    for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + exp::<FMA>(-gate)) * up;
    }
}

#[inline(always)]
fn swiglu_backward_body<const FMA: bool>(gate_up: &[f32], d_out: &[f32], d_gate_up: &mut [f32]) {
    let (gate, up) = gate_up.split_at(d_out.len());
    let (d_gate, d_up) = d_gate_up.split_at_mut(d_out.len());
    for i in 0..d_out.len() {
        let sigmoid = 1.0 / (1.0 + exp::<FMA>(-gate[i]));
        let silu = gate[i] * sigmoid;
        d_up[i] = d_out[i] * silu;
        d_gate[i] = d_out[i] * up[i] * (sigmoid + silu * (1.0 - sigmoid));
    }
}

#[inline(always)]
fn rotate_body<const FMA: bool>(head: &mut [f32], cos_sin: &[f32], sign: f32) {
    let half = head.len() / 2;
    let (cos, sin) = cos_sin.split_at(half);
    let (left, right) = head.split_at_mut(half);
    for i in 0..half {
        let (x, y, sin) = (left[i], right[i], sin[i] * sign);
        left[i] = mul_add::<FMA>(x, cos[i], -(y * sin));
        right[i] = mul_add::<FMA>(y, cos[i], x * sin);
    }
}

#[inline(always)]
fn scaled_body<const FMA: bool>(x: &[f32], factor: f32, out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = x * factor;
    }
}

#[inline(always)]
fn add_body<const FMA: bool>(x: &[f32], out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += x;
    }
}

#[inline(always)]
fn softmax_backward_body<const FMA: bool>(p: &[f32], d_p: &mut [f32], delta: f32, scale: f32) {
    for (d_p, p) in d_p.iter_mut().zip(p) {
        *d_p = p * (*d_p - delta) * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        for i in -870_000..880_000 {
            let x = i as f32 * 1e-4;
            let exact = f64::from(x).exp();
            for got in [exp::<true>(x), exp::<false>(x)] {
                assert!((f64::from(got) - exact).abs() <= exact * 2.4e-7, "exp({x}) = {got}, exact {exact}");
            }
        }
    }
}
