//! Watches that begin with a list.

use std::fmt::Debug;

use futures::stream::Stream;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::pause::Pause;

/// The page size of lists. The text of a page is in memory up to three times at once: of slices with a hundred
/// endpoints 1.5 MB each time.
const PAGE: u32 = 50;

/// Lists all objects, then watches them; each watch lasts for so many seconds.
pub fn watched<K>(
    api: Api<K>,
    seconds: u32,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().timeout(seconds).page_size(PAGE);
    watcher(api, config).backoff(Pause::default())
}
