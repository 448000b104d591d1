// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who is told what is new, and who is told no more.

use super::*;
use crate::limits::STREAMS_MAX;

fn begin(http: &Http, of: &str) -> TcpStream {
    let mut stream = connect(http);
    let request = format!("GET /api/v1/stream{of}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// What comes, up to this.
fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut said = String::new();
    let mut part = [0; 4096];
    while !said.contains(end) {
        let len = match stream.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        assert_ne!(len, 0, "it ends before {end:?}: {said}");
        said.push_str(std::str::from_utf8(&part[..len]).unwrap());
    }
    said
}

const PLAIN: &str = " HTTP/1.1\r\nHost: localhost";

#[test]
fn what_is_new_is_told_until_the_daemon_stops() {
    let http = port();
    let mut early = begin(&http, PLAIN);
    let head = until(&mut early, "retry: 2000\n\n");
    assert_eq!(status(&head), 200);
    assert!(head.to_lowercase().contains("content-type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("content-security-policy"), "{head}");
    let (target, clerk) = (Arc::new(target()), Arc::new(Clerk::default()));
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let said = until(&mut early, "event: load\ndata: {\"reply\":\"done\"}\n\n");
    let events = "id: 17-3\nevent: events\ndata: {\"reply\":\"events\",\"since_ms\":17,";
    assert!(said.contains(events), "{said}");
    // A second time only if there are new ones.
    let again = until(&mut early, "event: load\n");
    assert!(!again.contains("event: events"), "{again}");
    let mut back = begin(&http, &format!("?only=events{PLAIN}\r\nLast-Event-ID: 17-2"));
    let said = until(&mut back, "event: events\n");
    assert!(!said.contains("event: load"), "{said}");
    let asked = |number: u64| {
        let asked = clerk.asked.lock().unwrap();
        asked.contains(&Request::Events { after: number })
    };
    assert!(asked(2) && asked(3) && asked(0));
    http.stops();
    for stream in [&mut early, &mut back] {
        until(stream, "event: end\ndata: {}\n\n");
    }
    let said = said_to(
        &http,
        format!("GET /api/v1/stream{PLAIN}\r\nConnection: close\r\n\r\n").as_bytes(),
    );
    assert_eq!(status(&said), 503, "none begins then");
    target.stop(Duration::ZERO).unwrap();
}

/// Another process listens there next: this one goes at once.
#[test]
fn the_end_is_told_before_the_port_goes() {
    for _ in 0..10 {
        let http = port();
        let mut streams: Vec<TcpStream> = (0..3).map(|_| begin(&http, PLAIN)).collect();
        streams.iter_mut().for_each(|stream| drop(until(stream, "retry: ")));
        let mut idle = connect(&http);
        idle.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
        http.stops();
        let begun = Instant::now();
        drop(http);
        assert!(begun.elapsed() < Duration::from_secs(2), "nobody else is waited for");
        for stream in &mut streams {
            until(stream, "event: end\ndata: {}\n\n");
            assert!(rest(stream).len() <= 5, "the end of a chunked body at most");
        }
    }
}

/// Another daemon has counted so far.
#[test]
fn who_comes_from_another_daemon_hears_all() {
    let http = port();
    let (target, clerk) = (Arc::new(target()), Arc::new(Clerk::default()));
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let mut stream = begin(&http, &format!("{PLAIN}\r\nLast-Event-ID: 16-900"));
    until(&mut stream, "id: 17-3\nevent: events\n");
    let asked = clerk.asked.lock().unwrap();
    let events = asked.iter().filter(|request| matches!(request, Request::Events { .. }));
    let wanted = [Request::Events { after: 900 }, Request::Events { after: 0 }];
    assert_eq!(events.take(2).cloned().collect::<Vec<_>>(), wanted);
    drop((asked, stream));
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn there_is_a_bound_and_a_place_that_is_left_is_free() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let limits = Limits { connections: STREAMS_MAX + 2, ..LIMITS };
    let http = Http::within(limits, listener, Looks::new("1.2.3", Gate::default())).unwrap();
    let mut all: Vec<TcpStream> = (0..STREAMS_MAX).map(|_| begin(&http, PLAIN)).collect();
    all.iter_mut().for_each(|stream| drop(until(stream, "retry: ")));
    let more = || {
        let mut stream = begin(&http, PLAIN);
        status(&until(&mut stream, "\r\n\r\n"))
    };
    assert_eq!(more(), 503);
    assert_eq!(get(&http, "/healthz").0, 200, "others are answered");
    drop(all.pop());
    let begun = Instant::now();
    while more() != 200 {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn another_site_has_none() {
    let http = port();
    let mut stream = begin(&http, &format!("{PLAIN}\r\nSec-Fetch-Site: cross-site"));
    assert_eq!(status(&until(&mut stream, "\r\n\r\n")), 403);
    let mut stream = begin(&http, " HTTP/1.1\r\nHost: example.com");
    assert_eq!(status(&until(&mut stream, "\r\n\r\n")), 421);
}
