//! The stream of events.

use crate::harness::Server;

#[test]
fn events_are_streamed_until_the_server_stops() {
    let mut server = Server::start(&["--web.max-notifications-subscribers=1"]);
    let mut connection = server.http().connect();
    connection.send(b"GET /api/v1/notifications/live HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = connection.read(64);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    server
        .http()
        .get("/api/v1/notifications/live")
        .expect_status(204);
    assert!(server.terminate().success());
    let rest = connection.read_to_end();
    let event = "{\"text\":\"Prometheus is shutting down and gracefully stopping all operations.\",\"date\":\"";
    assert!(
        rest.contains(&format!("data: {event}")) && rest.contains("\"active\":true}\n\n"),
        "{rest}"
    );
}
