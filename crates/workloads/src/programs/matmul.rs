//! The paper's first neighbour: matrices multiplied, all the time, by threads that never wait.
//!
//! Two square matrices of 256 x 256 numbers (512 KiB each), shared by all threads and read over and over, so it wants
//! its vCPUs and its cache. An item is some rows of their product; the granularity says how many.

use crate::job::{Job, Tally};
use crate::plan::WorkloadError;
use crate::work::{ITERATIONS_PER_US, mix};

const SIDE: usize = 256;
/// A row of the product counts as so many microseconds of granularity.
const ROW_US: u64 = 24;

pub(crate) fn run(job: &Job) -> Result<Tally, WorkloadError> {
    let rows = (job.plan.iterations / (ROW_US * ITERATIONS_PER_US)).max(1);
    // Small whole numbers: their products' sums are exact, in whichever order and on whichever machine.
    let matrix = |which: u64| -> Vec<f64> {
        (0..(SIDE * SIDE) as u64).map(|n| (mix(job.plan.seed, which << 32 | n) % 1_000) as f64).collect()
    };
    let (left, right) = (matrix(0), matrix(1));
    job.crew(job.plan.threads, |_| {
        let mut tally = Tally::default();
        let mut product = [0.0; SIDE];
        while let Some(item) = job.claim() {
            let mut result = 0;
            for row in 0..rows {
                let number = usize::try_from((item * rows + row) % SIDE as u64).unwrap_or(0);
                multiply(&left[number * SIDE..][..SIDE], &right, &mut product);
                result = product.iter().fold(result, |sum, x| mix(sum, x.to_bits()));
            }
            tally.checksum.add(item, result);
            job.finish();
        }
        Ok(tally)
    })
}

/// One row of the left matrix times the right matrix.
fn multiply(row: &[f64], right: &[f64], product: &mut [f64; SIDE]) {
    product.fill(0.0);
    for (factor, line) in row.iter().zip(right.chunks_exact(SIDE)) {
        for (sum, x) in product.iter_mut().zip(line) {
            *sum += factor * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_times_the_identity_is_the_row() {
        let mut identity = vec![0.0; SIDE * SIDE];
        (0..SIDE).for_each(|n| identity[n * SIDE + n] = 1.0);
        let row: Vec<f64> = (0..SIDE).map(|n| n as f64).collect();
        let mut product = [9.0; SIDE];
        multiply(&row, &identity, &mut product);
        assert_eq!(product.as_slice(), row);
    }
}
