//! The order in which the actor looks at its inputs: another one each time, so that no input that is always ready starves the
//! others, and drawn from the session's seed, so that a run can be repeated.
//!
//! `tokio::select!` is as fair, and cannot be repeated. Only the actor's loop uses this. It decides nothing about the inputs.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// See the module.
#[derive(Debug)]
pub(super) struct FairOrder(u64);

impl FairOrder {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The output of one of these futures that is ready. They are polled one after the other, in a cycle that begins at a random
    /// one. `futures` is not empty.
    pub(super) async fn first_ready<T>(&mut self, futures: &mut [Pin<&mut (dyn Future<Output = T> + Send)>]) -> T {
        let n = futures.len();
        let first = self.below(n);
        poll_fn(|context| {
            for at in (first..n).chain(0..first) {
                if let Poll::Ready(output) = futures[at].as_mut().poll(context) {
                    return Poll::Ready(output);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// A linear congruential generator (Knuth's MMIX), of whose bits the highest are used.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// `future`, if `condition` holds; otherwise it never resolves.
pub(super) async fn only_if<F: Future>(condition: bool, future: F) -> F::Output {
    match condition {
        true => future.await,
        false => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use std::pin::pin;

    async fn drawn(seed: u64, n: usize) -> Vec<usize> {
        let mut order = FairOrder::new(seed);
        let mut drawn = Vec::new();
        for _ in 0..n {
            let a = pin!(ready(0));
            let b = pin!(only_if(false, ready(1)));
            let c = pin!(ready(2));
            let mut futures: [Pin<&mut (dyn Future<Output = usize> + Send)>; 3] = [a, b, c];
            drawn.push(order.first_ready(&mut futures).await);
        }
        drawn
    }

    #[tokio::test]
    async fn each_ready_input_has_its_turn_and_a_seed_repeats_the_order() {
        let order = drawn(7, 300).await;
        assert_eq!(order, drawn(7, 300).await);
        assert_ne!(order, drawn(8, 300).await);
        let n_first = order.iter().filter(|at| **at == 0).count();
        assert!(
            (50..150).contains(&n_first) && !order.contains(&1),
            "a third, and what is behind the other third: {n_first}"
        );
    }
}
