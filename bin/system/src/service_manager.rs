//! The service manager that started the process: state changes for systemd's `Type=notify`, as
//! sd_notify(3) defines.
//!
//! A message is a datagram to the socket that `NOTIFY_SOCKET` names. Without the variable nothing
//! is sent. A message that cannot be sent is dropped: the server works without a service manager.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A state of the process.
#[derive(Debug, Clone, Copy)]
pub enum ServiceState<'a> {
    /// The process serves requests, for the first time or after a reload.
    Ready,
    /// The process reloads its configuration.
    Reloading,
    /// The process is shutting down.
    Stopping,
    /// One line of text for `systemctl status`.
    Status(&'a str),
    /// The keep-alive for `WatchdogSec=`.
    Alive,
}

static SOCKET: LazyLock<Option<UnixDatagram>> = LazyLock::new(|| {
    let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
    connect(&name)
        .inspect_err(|error| tracing::warn!(?name, %error, "Cannot notify the service manager"))
        .ok()
});

/// Returns `true` if a service manager wants to know the state.
pub fn is_present() -> bool {
    SOCKET.is_some()
}

/// Sends a state to the service manager, if there is one.
pub fn notify(state: ServiceState<'_>) {
    if let Some(socket) = &*SOCKET {
        // A full queue of the service manager must not block the server: the socket is in
        // non-blocking mode.
        let _sent = socket.send(message(state).as_bytes());
    }
}

/// Returns how often [`ServiceState::Alive`] must be sent at least; `None` without a watchdog.
pub fn watchdog_interval() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    // Another process of the unit may be the watched one.
    let is_watched = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    number("WATCHDOG_USEC")
        .filter(|&micros| is_watched && micros > 0)
        .map(Duration::from_micros)
}

/// Connects to a path, or to an abstract name after `@`.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn message(state: ServiceState<'_>) -> String {
    match state {
        ServiceState::Ready => "READY=1".to_owned(),
        ServiceState::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()),
        ServiceState::Stopping => "STOPPING=1".to_owned(),
        // Each line is an assignment.
        ServiceState::Status(text) => format!("STATUS={}", text.replace('\n', " ")),
        ServiceState::Alive => "WATCHDOG=1".to_owned(),
    }
}

fn monotonic_micros() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_paths_and_abstract_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("@{}", dir.path().display());
        let abstract_name = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        for (server, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str()),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                OsStr::new(&name),
            ),
        ] {
            let client = connect(name).unwrap();
            client
                .send(message(ServiceState::Status("a\nb")).as_bytes())
                .unwrap();
            let mut buffer = [0; 64];
            let size = server.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..size], b"STATUS=a b");
        }
        assert!(connect(OsStr::new("vsock:2:1")).is_err());
    }

    #[test]
    fn a_reload_has_the_time_of_the_monotonic_clock() {
        let text = message(ServiceState::Reloading);
        let micros: i64 = text
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .unwrap()
            .parse()
            .unwrap();
        assert!(micros > 0 && micros <= monotonic_micros());
    }
}
