use super::*;
use crate::workers::Workers;
use proptest::prelude::*;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count).map(|i| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32 / 1e7 - 0.8).collect()
}

/// `y[m, n] = start + x W^T` in f64.
fn naive(x: &[f32], weight: &[f32], m: usize, n: usize, k: usize, start: &[f32]) -> Vec<f64> {
    let element = |row: usize, column: usize| -> f64 {
        let products = (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(weight[column * k + i]));
        f64::from(start[row * n + column]) + products.sum::<f64>()
    };
    (0..m * n).map(|i| element(i / n, i % n)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_product_is_that_of_the_definition(
        m in 1usize..40, n in 1usize..90, k in 1usize..70, accumulate: bool, threads in 1usize..3, seed: u32,
    ) {
        let (x, weight) = (numbers(m * k, seed), numbers(n * k, !seed));
        let start = if accumulate { numbers(m * n, 7) } else { vec![0.0; m * n] };
        let expected = naive(&x, &weight, m, n, k, &start);
        let packed = Packed::new(&weight, n, k);
        let workers = Workers::new(threads);
        for matrix in [Matrix::Packed(&packed), Matrix::plain(&weight, k)] {
            let mut y = if accumulate { start.clone() } else { vec![f32::NAN; m * n] };
            matrix.apply(&workers, m, &x, &mut y, accumulate);
            for (y, expected) in y.iter().zip(&expected) {
                prop_assert!((f64::from(*y) - expected).abs() < 1e-4 * (k as f64), "{y} for {expected}");
            }
        }
        let mut fused: Option<Vec<f32>> = None;
        for isa in Isa::present() {
            let mut y = start.clone();
            multiply(isa, m, &x, k, packed.panels(), &mut y, n, accumulate);
            for (y, expected) in y.iter().zip(&expected) {
                prop_assert!((f64::from(*y) - expected).abs() < 1e-4 * (k as f64), "{y} for {expected}, {isa:?}");
            }
            if isa != Isa::Portable {
                prop_assert_eq!(fused.get_or_insert_with(|| y.clone()), &y, "{:?} differs", isa);
            }
        }
    }

    #[test]
    fn a_row_is_the_same_bits_in_any_batch(m in 1usize..70, n in 1usize..70, k in 1usize..300, row in 0usize..70, seed: u32) {
        let row = row % m;
        let (x, weight) = (numbers(m * k, seed), numbers(n * k, !seed));
        let packed = Packed::new(&weight, n, k);
        let (mut all, mut alone) = (vec![0.0; m * n], vec![0.0; n]);
        multiply(Isa::detect(), m, &x, k, packed.panels(), &mut all, n, false);
        multiply(Isa::detect(), 1, &x[row * k..][..k], k, packed.panels(), &mut alone, n, false);
        prop_assert_eq!(&all[row * n..][..n], &alone[..]);
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let (n, k) = (700, 300);
    let weight = numbers(n * k, 3);
    let packed = Packed::new(&weight, n, k);
    for m in [1, 5, 130] {
        let x = numbers(m * k, 5);
        let results = [1, 2, 3].map(|threads| {
            let mut y = vec![0.0; m * n];
            Matrix::Packed(&packed).apply(&Workers::new(threads), m, &x, &mut y, false);
            y
        });
        assert!(results.iter().all(|y| *y == results[0]), "{m} rows");
    }
}

#[test]
fn a_packed_row_is_the_weight_s_row() {
    let weight = numbers(37 * 5, 1);
    let packed = Packed::new(&weight, 37, 5);
    for row in 0..37 {
        let mut out = [0.0; 5];
        packed.row(row, &mut out);
        assert_eq!(out, weight[row * 5..][..5]);
    }
}
