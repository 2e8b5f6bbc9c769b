//! Asking the task that knows for a snapshot of what is true, when somebody wants to see it: while
//! nobody does, it costs nothing, and however many do, it costs little.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use leasehold_core::clock::Instant;

/// Questions that wait. Full: further ones are not answered.
const QUESTIONS: usize = 64;
/// The timeout of a question.
const PATIENCE: Duration = Duration::from_secs(1);
/// For how long a snapshot answers all questions. Where it took long, …
const FRESH: Duration = Duration::from_millis(250);
/// … one is made for a small part of the time only.
const REST: u32 = 20;

type Question<T> = oneshot::Sender<Arc<T>>;

/// Asks for snapshots.
#[derive(Debug)]
pub struct Asker<T>(mpsc::Sender<Question<T>>);

impl<T> Clone for Asker<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The questions, for the task that knows.
#[derive(Debug)]
pub struct Questions<T> {
    waiting: mpsc::Receiver<Question<T>>,
    /// The last snapshot, and until when it is fresh.
    last: Option<(Arc<T>, Instant)>,
}

/// A way to ask, and what is asked.
pub fn questions<T>() -> (Asker<T>, Questions<T>) {
    let (sender, waiting) = mpsc::channel(QUESTIONS);
    (Asker(sender), Questions { waiting, last: None })
}

impl<T> Asker<T> {
    /// The snapshot; none where nobody answers: the task has not begun or has ended, or too many ask.
    pub async fn ask(&self) -> Option<Arc<T>> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(answer).ok()?;
        tokio::time::timeout(PATIENCE, answered).await.ok()?.ok()
    }
}

impl<T> Questions<T> {
    /// The next question of somebody who still waits. Cancel safe.
    pub async fn recv(&mut self) -> Option<Question<T>> {
        loop {
            let question = self.waiting.recv().await?;
            if !question.is_closed() {
                return Some(question);
            }
        }
    }

    /// Whether the next answer takes a new snapshot.
    pub fn is_stale(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|(_, until)| now >= *until)
    }

    /// Frees the memory of a snapshot that answers nobody any more.
    pub fn forget_stale(&mut self, now: Instant) {
        self.last.take_if(|(_, until)| now >= *until);
    }

    /// Answers from now on with a snapshot that was made from `began` to `ended`.
    pub fn keep(&mut self, snapshot: T, began: Instant, ended: Instant) {
        let fresh = FRESH.max(ended.saturating_since(began) * REST);
        self.last = Some((Arc::new(snapshot), ended + fresh));
    }

    /// Answers with the snapshot that is kept.
    pub fn answer(&self, question: Question<T>) {
        if let Some((snapshot, _)) = &self.last {
            // Dropped where nobody waits any more.
            let _ = question.send(Arc::clone(snapshot));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_millis(millis))
    }

    #[tokio::test]
    async fn who_has_hung_up_is_not_answered_and_many_are_answered_by_one_snapshot() {
        let (asker, mut questions) = questions::<u32>();
        // Each asks and gives up at once.
        for _ in 0..QUESTIONS - 3 {
            let gave_up = tokio::time::timeout(Duration::ZERO, asker.ask()).await;
            assert!(gave_up.is_err());
        }
        let answering = async {
            let mut made = 0;
            for turn in 0..3 {
                let question = questions.recv().await.unwrap();
                let now = at(1000 + turn);
                if questions.is_stale(now) {
                    made += 1;
                    questions.keep(made, now, now);
                }
                questions.answer(question);
            }
            made
        };
        let (answers, made) =
            tokio::join!(async { tokio::join!(asker.ask(), asker.ask(), asker.ask()) }, answering);
        assert_eq!(made, 1);
        let answers = [answers.0, answers.1, answers.2].map(|answer| answer.map(|it| *it));
        assert_eq!(answers, [Some(1); 3]);
    }

    #[test]
    fn a_snapshot_is_fresh_for_a_while_and_for_longer_where_it_took_long() {
        let (_asker, mut questions) = questions::<u32>();
        assert!(questions.is_stale(at(0)));
        questions.keep(1, at(0), at(1));
        assert!(!questions.is_stale(at(250)));
        assert!(questions.is_stale(at(251)));
        questions.keep(2, at(1000), at(1100));
        assert!(!questions.is_stale(at(3099)));
        assert!(questions.is_stale(at(3100)));
    }
}
