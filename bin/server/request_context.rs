//! What is called, and by whom: what lists, logs and the request ring tell of a request.
//!
//! The layer around all routes makes one [`Call`] per request, and what works for the request finds it through
//! [`Call::current`]: it concerns no handler, and every handler has it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::{Method, header};
use jiff::Timestamp;
use varve_query::QueryStats;

use super::rejects::Sender;
use crate::http::params::Form;

/// Bytes of a user agent that are kept.
const USER_AGENT_SIZE_MAX: usize = 256;
/// Bytes of a query or of selectors that are kept: a query that is longer is refused.
const TEXT_SIZE_MAX: usize = 1 << 20;

/// The address of the other side of a connection; goes with each of its requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// The name under which a request was let in; goes with it where names are asked for.
#[derive(Debug, Clone)]
pub(crate) struct User(pub(crate) Arc<str>);

/// A request, as lists and logs tell of it.
#[derive(Debug)]
pub(crate) struct Call {
    /// Counts from 1 in the life of a process.
    pub(crate) id: u64,
    pub(crate) started: Timestamp,
    pub(crate) method: Method,
    /// The route, with parameters of the path as Prometheus writes them: `:name`.
    pub(crate) route: String,
    pub(crate) client: Option<SocketAddr>,
    pub(crate) user_agent: String,
    /// Empty where names are not asked for.
    pub(crate) user: Arc<str>,
    asked: OnceLock<Asked>,
    times: OnceLock<Times>,
    stats: OnceLock<QueryStats>,
    is_read: AtomicBool,
}

/// The times of a query, as they were understood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// 0 for a query at one time.
    pub(crate) step_ms: i64,
}

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The query, or the selectors with commas in between.
    pub(crate) text: String,
    pub(crate) start: String,
    pub(crate) end: String,
    pub(crate) step: String,
}

tokio::task_local! {
    static CURRENT: Arc<Call>;
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Call {
    /// Takes from a request what is told of it.
    pub(crate) fn of(request: &Request, route: String) -> Arc<Self> {
        let user_agent = request.headers().get(header::USER_AGENT);
        let user_agent = String::from_utf8_lossy(user_agent.map_or(b"", |value| value.as_bytes()));
        let user = request.extensions().get::<User>().map_or_else(|| Arc::from(""), |user| Arc::clone(&user.0));
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            started: Timestamp::now(),
            method: request.method().clone(),
            route,
            client: request.extensions().get::<Peer>().map(|peer| peer.0),
            user_agent: cut(&user_agent, USER_AGENT_SIZE_MAX).to_owned(),
            user,
            asked: OnceLock::new(),
            times: OnceLock::new(),
            stats: OnceLock::new(),
            is_read: AtomicBool::new(false),
        })
    }

    /// Makes `work` part of this call.
    pub(crate) async fn scope<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// Returns the call that the running task works for; one without a name outside of any.
    pub(crate) fn current() -> Arc<Self> {
        CURRENT.try_with(Arc::clone).unwrap_or_else(|_outside| Self::of(&Request::default(), String::new()))
    }

    /// Returns what is told of the sender of a write.
    pub(crate) fn sender(&self) -> Sender {
        let (user_agent, user, path) = (self.user_agent.clone(), Arc::clone(&self.user), self.route.clone());
        Sender { address: self.client, user_agent, user, path }
    }

    /// Notes the parameters; the first note stands.
    pub(crate) fn note_form(&self, form: &Form) {
        self.asked.get_or_init(|| Asked::of(form));
    }

    /// Returns what is asked for, as far as it has been read.
    pub(crate) fn asked(&self) -> &Asked {
        static NOTHING: Asked =
            Asked { text: String::new(), start: String::new(), end: String::new(), step: String::new() };
        self.asked.get().unwrap_or(&NOTHING)
    }

    /// Notes the times of a query; the first note stands.
    pub(crate) fn note_times(&self, times: Times) {
        self.times.get_or_init(|| times);
    }

    /// Returns the times, if this is a query.
    pub(crate) fn times(&self) -> Option<Times> {
        self.times.get().copied()
    }

    /// Notes the statistics of a query that has its value; the first note stands.
    pub(crate) fn note_stats(&self, stats: &QueryStats) {
        self.stats.get_or_init(|| stats.clone());
    }

    /// Returns the statistics, if there are any.
    pub(crate) fn stats(&self) -> Option<&QueryStats> {
        self.stats.get()
    }

    /// Notes that the request only reads.
    pub(crate) fn note_read(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    /// Tells whether the request may have changed what the store holds.
    pub(crate) fn may_have_written(&self) -> bool {
        let harmless = matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS);
        !harmless && !self.is_read.load(Ordering::Relaxed)
    }
}

impl Asked {
    fn of(form: &Form) -> Self {
        let text = match form.first("query") {
            "" => form.all("match[]").collect::<Vec<_>>().join(", "),
            query => query.to_owned(),
        };
        let start = if form.first("start").is_empty() { form.first("time") } else { form.first("start") };
        Self {
            text: cut(&text, TEXT_SIZE_MAX).to_owned(),
            start: start.to_owned(),
            end: form.first("end").to_owned(),
            step: form.first("step").to_owned(),
        }
    }
}

/// Returns the start of a text, up to `size_max` bytes of whole characters.
pub(crate) fn cut(text: &str, size_max: usize) -> &str {
    &text[..text.floor_char_boundary(size_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_tells_who_asks_for_what() {
        let mut request = Request::default();
        let agent = "ä".repeat(USER_AGENT_SIZE_MAX);
        request.headers_mut().insert(header::USER_AGENT, agent.parse().unwrap());
        request.extensions_mut().insert(User("ann".into()));
        let call = Call::of(&request, "/api/v1/series".into());
        assert_eq!((&*call.user, call.user_agent.len()), ("ann", USER_AGENT_SIZE_MAX));
        let mut form = Form::default();
        form.add(b"match[]=a&match[]=b&start=1").unwrap();
        call.note_form(&form);
        assert_eq!((call.asked().text.as_str(), call.asked().start.as_str()), ("a, b", "1"));
    }

    #[test]
    fn what_may_have_written_is_not_a_read() {
        let mut request = Request::default();
        assert!(!Call::of(&request, String::new()).may_have_written());
        *request.method_mut() = Method::POST;
        let call = Call::of(&request, String::new());
        assert!(call.may_have_written());
        call.note_read();
        assert!(!call.may_have_written());
    }
}
