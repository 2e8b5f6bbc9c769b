//! Asking the task that knows for a snapshot of what is true, when somebody wants to see it: while
//! nobody does, it costs nothing.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// Questions that wait. Full: further ones are not answered.
const QUESTIONS: usize = 8;
/// How long a question waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks for snapshots.
#[derive(Debug)]
pub struct Asker<T>(mpsc::Sender<oneshot::Sender<T>>);

impl<T> Clone for Asker<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The questions, for the task that knows.
pub type Questions<T> = mpsc::Receiver<oneshot::Sender<T>>;

/// A way to ask, and what is asked.
pub fn questions<T>() -> (Asker<T>, Questions<T>) {
    let (sender, receiver) = mpsc::channel(QUESTIONS);
    (Asker(sender), receiver)
}

impl<T> Asker<T> {
    /// The snapshot; none where nobody answers: the task has not begun or has ended, or too many ask.
    pub async fn ask(&self) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(answer).ok()?;
        tokio::time::timeout(PATIENCE, answered).await.ok()?.ok()
    }
}
