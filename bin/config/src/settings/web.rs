//! Settings of the HTTP API and of connections.

use std::time::Duration;

use varve_regexp::Regexp;

use super::automatic::or_default;
use super::features::{SEARCH_FEATURE, has_feature};
use crate::external_url::{ExternalUrl, RoutePrefix};
use crate::flags::ServeArgs;

/// Settings of the HTTP API and of connections.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// Addresses to listen on, at least one.
    pub listen_addresses: Vec<String>,
    /// Address of a listener for gRPC only.
    pub grpc_address: Option<String>,
    /// Label of the tenant of samples that a Thanos Receive router forwards. Empty is none.
    pub receive_tenant_label: String,
    /// The URL under which clients reach the server.
    pub external_url: ExternalUrl,
    /// The path under which endpoints are served.
    pub route_prefix: RoutePrefix,
    /// Maximum time to read a request, and to keep an idle connection open.
    pub read_timeout: Duration,
    /// Minimum bytes per second at which a body must arrive. 0 is no limit.
    pub body_rate_min: usize,
    /// Maximum number of open connections.
    pub connections_max: usize,
    /// Maximum bytes that a connection may receive before a handler takes them: the heads of
    /// requests, and the starts of their bodies. No memory budget counts them.
    pub receive_size_max: usize,
    /// Maximum bytes of the long URLs of all connections, and of the heads that are being received
    /// with them.
    pub long_heads_size_max: usize,
    /// Limits of a response.
    pub response: ResponseLimits,
    /// Maximum number of responses that wait for slow clients.
    pub slow_clients_max: usize,
    /// Whether the administrative endpoints are enabled.
    pub is_admin_enabled: bool,
    /// Whether /-/reload and /-/quit are enabled.
    pub is_lifecycle_enabled: bool,
    /// Host names under which clients reach the server. Empty: any.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may read responses.
    pub cors_origin: Regexp,
    /// Maximum number of subscribers to notifications.
    pub notifications_subscribers_max: usize,
    /// Whether the experimental search endpoints are enabled.
    pub search: bool,
    /// Maximum number of results of a search. 0 is no limit.
    pub search_results_max: usize,
}

/// Limits of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseLimits {
    /// Bytes that are buffered before the first one is sent.
    pub buffer_size: usize,
    /// Maximum size of a response in bytes.
    pub size_max: usize,
    /// Maximum time for which a client may read nothing.
    pub stall_timeout: Duration,
}

impl ResponseLimits {
    /// Buffers a whole response, so that its writer never waits for the client.
    pub fn without_streaming(self) -> Self {
        Self {
            buffer_size: self.size_max,
            ..self
        }
    }
}

/// Returns the settings of the HTTP API of a process that may open this many files, and use `memory`
/// bytes.
pub(super) fn web(
    args: &ServeArgs,
    open_files: Option<u64>,
    memory: usize,
    is_tls: bool,
) -> WebSettings {
    let first_address = args
        .listen_addresses
        .first()
        .expect("clap has a default address");
    let external_url = args.external_url.clone();
    let external_url = external_url.or_listener(first_address, is_tls);
    let connections_max = connections_max(args.max_connections, open_files);
    WebSettings {
        listen_addresses: args.listen_addresses.clone(),
        grpc_address: args.grpc_address.clone(),
        receive_tenant_label: args.receive_tenant_label_name.clone(),
        route_prefix: RoutePrefix::new(&args.route_prefix, &external_url),
        external_url,
        read_timeout: args.read_timeout,
        body_rate_min: args.min_body_rate,
        connections_max,
        receive_size_max: (memory / RECEIVE_SHARE / connections_max).max(RECEIVE_SIZE_MIN),
        long_heads_size_max: (memory / LONG_HEADS_SHARE).max(LONG_HEADS_SIZE_MIN),
        response: ResponseLimits {
            buffer_size: args.response_buffer,
            size_max: or_default(args.max_response_size, || usize::MAX),
            stall_timeout: args.write_stall_timeout,
        },
        slow_clients_max: (memory / SLOW_CLIENTS_SHARE / SLOW_CLIENT_SIZE).max(SLOW_CLIENTS_MIN),
        is_admin_enabled: args.enable_admin_api,
        is_lifecycle_enabled: args.enable_lifecycle,
        allowed_hosts: args.allowed_hosts.clone(),
        cors_origin: args.cors_origin.clone(),
        notifications_subscribers_max: args.max_notifications_subscribers,
        search: has_feature(args, SEARCH_FEATURE),
        search_results_max: args.search_max_limit,
    }
}

/// All connections together may buffer one in this many bytes of the memory, but each at least
/// [`RECEIVE_SIZE_MIN`].
const RECEIVE_SHARE: usize = 8;
/// Minimum bytes that a connection may buffer: a URL of 64 KiB and headers.
const RECEIVE_SIZE_MIN: usize = 96 << 10;

/// The long URLs of all connections may use one in this many bytes of the memory.
const LONG_HEADS_SHARE: usize = 32;
/// Minimum bytes of the long URLs of all connections: two of 1 MiB, each of which is copied once
/// when its buffer grows.
const LONG_HEADS_SIZE_MIN: usize = 4 << 20;

/// All responses that wait for slow clients may keep one in this many bytes of the memory.
const SLOW_CLIENTS_SHARE: usize = 8;
/// What a response that waits keeps in addition to what is charged: a thread, and what the
/// allocator retains for it.
const SLOW_CLIENT_SIZE: usize = 1 << 20;
/// Minimum of the maximum number of responses that wait for slow clients.
const SLOW_CLIENTS_MIN: usize = 8;

/// Returns the maximum number of connections: at most half of the files that the process may open,
/// with a warning. The store needs the other half, for blocks and WAL segments: a write fails if it
/// cannot open a file, but a connection above the maximum only closes an idle one.
fn connections_max(configured: usize, open_files: Option<u64>) -> usize {
    let Some(open_files) = open_files else {
        return configured;
    };
    let limit = usize::try_from(open_files / 2).unwrap_or(usize::MAX).max(1);
    if configured > limit {
        tracing::warn!(
            "--web.max-connections={configured} is lowered to {limit}, half of the limit of {open_files} open files; \
             raise that limit (LimitNOFILE of the systemd unit, or `ulimit -Hn`)"
        );
    }
    configured.min(limit)
}
