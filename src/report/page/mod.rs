//! The status page: what is true now, for people, on the address of the metrics. It is rendered here,
//! so it can be read without JavaScript; with it the page follows what happens. Nothing can be changed
//! by it, and nothing secret is on it.
//!
//! | path | what |
//! |---|---|
//! | `/` | the page |
//! | `/live` | its sections as they change (server-sent events) |
//! | `/status.json` | the snapshot from which it is made |
//! | `/style.css`, `/live.js` | its assets, part of this program |
//!
//! | module | what |
//! |---|---|
//! | [`view`] | the shell of the page and what sections are made of |
//! | [`picture`] | nodes, and the addresses on them |
//! | [`speaker`] | the sections of a speaker |

pub mod picture;
pub mod speaker;
pub mod view;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream::{self, Stream, StreamExt};
use maud::{Markup, PreEscaped, html};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::report::ask::Asker;
use crate::report::server::Readiness;

/// The interval of updates of an open page.
const LOOK: Duration = Duration::from_millis(500);
/// The greatest number of open pages.
const OPEN: usize = 16;

/// Nothing but the page's own assets is loaded, run or connected to, and nobody can embed it.
const SECURITY: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
         img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// A part of the page that is replaced as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its id in the page.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Its content, as HTML.
    pub body: String,
}

impl Section {
    /// A section with this body.
    pub fn new(id: &'static str, title: &'static str, body: Markup) -> Self {
        Self { id, title, body: body.into_string() }
    }

    fn markup(&self) -> Markup {
        html! {
            section id=(self.id) aria-labelledby={ (self.id) "-title" } {
                h2 id={ (self.id) "-title" } { (self.title) }
                (PreEscaped(&self.body))
            }
        }
    }
}

/// The source of a page.
pub trait Snapshot: serde::Serialize + Send + Sync + 'static {
    /// The title of the page.
    fn title(&self) -> String;
    /// Its sections, in order.
    fn sections(&self) -> Vec<Section>;
}

/// The routes of a page that shows the snapshots of `asker`; where there is none, what `/readyz` says.
pub fn routes<S, F>(asker: Asker<S>, readiness: F) -> Router
where
    S: Snapshot,
    F: Fn() -> Readiness + Clone + Send + Sync + 'static,
{
    let (page, json) = (asker.clone(), asker.clone());
    let open = Arc::new(Semaphore::new(OPEN));
    Router::new()
        .route("/", get(async move || whole(&page, readiness()).await))
        .route("/status.json", get(async move || status(&json).await))
        .route(
            "/live",
            get(async move || match Arc::clone(&open).try_acquire_owned() {
                Ok(place) => live(asker.clone(), place).into_response(),
                Err(_) => refuse("too many pages are open: close one, or reload this page"),
            }),
        )
        .route("/style.css", get(async || asset("text/css", include_str!("style.css"))))
        .route("/live.js", get(async || asset("text/javascript", include_str!("live.js"))))
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    (SECURITY, [(header::CONTENT_TYPE, kind)], text).into_response()
}

fn refuse(why: &'static str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, SECURITY, format!("{why}\n")).into_response()
}

/// The text of the page without a snapshot.
const SILENT: &str = "no status is available; /readyz gives the reason";

async fn whole<S: Snapshot>(asker: &Asker<S>, readiness: Readiness) -> Response {
    let (code, page) = if let Some(snapshot) = asker.ask().await {
        let sections = snapshot.sections().iter().map(Section::markup).collect::<Vec<_>>();
        (StatusCode::OK, view::shell(&snapshot.title(), &html! { @for s in &sections { (s) } }))
    } else {
        let code = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = html! { section { p { (readiness.text) } } };
        (code, view::shell("Leasehold", &body))
    };
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (code, SECURITY, kind, page.into_string()).into_response()
}

async fn status<S: Snapshot>(asker: &Asker<S>) -> Response {
    let Some(snapshot) = asker.ask().await else { return refuse(SILENT) };
    match serde_json::to_string_pretty(&*snapshot) {
        Ok(json) => {
            (SECURITY, [(header::CONTENT_TYPE, "application/json")], json + "\n").into_response()
        }
        Err(_) => refuse("the snapshot cannot be written as JSON"),
    }
}

/// Sends each section that is not what was sent before.
fn live<S: Snapshot>(asker: Asker<S>, place: OwnedSemaphorePermit) -> impl IntoResponse {
    let looks = stream::unfold((asker, Vec::new(), place), async |(asker, known, place)| {
        if !known.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
        // One that cannot be taken is no news.
        let now = asker.ask().await.map_or_else(|| known.clone(), |snapshot| snapshot.sections());
        let news: Vec<Section> =
            now.iter().filter(|section| !known.contains(section)).cloned().collect();
        Some((news, (asker, now, place)))
    });
    let events = looks.flat_map(|news| {
        stream::iter(news.into_iter().map(|section| {
            let html = section.markup().into_string();
            Ok::<_, Infallible>(Event::default().event("section").data(html))
        }))
    });
    let events: std::pin::Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(events);
    (SECURITY, Sse::new(events).keep_alive(KeepAlive::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_say_is_shown_and_never_run() {
        let body = html! { p { ("<script>alert(1)</script>") } };
        let section = Section::new("a", "A", body).markup().into_string();
        assert!(section.contains("&lt;script&gt;") && !section.contains("<script>"), "{section}");
    }

    #[test]
    fn nothing_on_the_page_needs_more_than_its_policy_allows() {
        let page = view::shell("title", &html! {}).into_string();
        let mut tags = page.split('<').filter_map(|rest| rest.split('>').next());
        assert!(tags.all(|tag| !tag.contains(" style=") && !tag.contains(" on")), "{page}");
        let (_, policy) = &SECURITY[0];
        assert!(!policy.contains("unsafe"));
    }
}
