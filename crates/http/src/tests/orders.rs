// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders, of those who have a token and of those who have none.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::tokens::tests::CHANGE;
use crate::tokens::tests::file;

/// Head and body of an order, whose lines are taken as they are.
fn order(http: &Http, lines: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!(
        "POST /api/v1/orders HTTP/1.1\r\nHost: localhost:9260\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{lines}\r\n{body}"
    );
    let said = said_to(http, request.as_bytes());
    (status(&said), said)
}

#[test]
fn who_has_a_token_for_that_may_change_something() {
    const READ: &str = "fedcba9876543210fedcba9876543210";
    const DROP: &str = "{\"request\":\"drop-session\",\"tsih\":7}";
    let file = file(&format!("change {CHANGE}\nread {READ}\n"), 0o600);
    let http = port_with(Some(Tokens::of(file.path()).unwrap()));
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let json = "Content-Type: application/json\r\n";
    let good = bearer(CHANGE) + json;
    let (target, clerk) = (Arc::new(target()), Arc::new(Clerk::default()));
    assert_eq!(order(&http, &good, DROP).0, 503, "nothing is served yet");
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    assert_eq!(get(&http, "/api/v1/sessions").0, 200);
    let here = "Origin: http://localhost:9260\r\nSec-Fetch-Site: same-origin\r\n";
    for lines in [
        good.clone(),
        format!("Authorization: bearer   {CHANGE}\r\n{json}"),
        bearer(CHANGE) + "Content-Type: Application/JSON; charset=utf-8\r\n",
        good.clone() + here,
    ] {
        let (status, said) = order(&http, &lines, DROP);
        assert_eq!(status, 200, "{lines}: {said}");
        assert!(said.ends_with("{\"reply\":\"done\"}\n"), "{said}");
        let asked = clerk.asked.lock().unwrap().pop();
        assert_eq!(asked, Some(Request::DropSession { tsih: 7 }));
    }
    assert_eq!(get(&http, "/api/v1/sessions").0, 200);
    let asked = clerk.asked.lock().unwrap().drain(..).collect::<Vec<_>>();
    assert_eq!(asked, [Request::Sessions, Request::Sessions], "what was told before is old");
    let long = format!("{{\"request\":\"drop-session\",\"tsih\":7{}}}", " ".repeat(17 << 10));
    for (lines, body, wanted) in [
        (json.to_owned(), DROP, 401),
        (bearer(&CHANGE.to_uppercase()) + json, DROP, 401),
        (bearer("") + json, DROP, 401),
        (format!("Authorization: Basic {CHANGE}\r\n{json}"), DROP, 401),
        (format!("Authorization: {CHANGE}\r\n{json}"), DROP, 401),
        (bearer(READ) + json, DROP, 403),
        (bearer(CHANGE), DROP, 415),
        (bearer(CHANGE) + "Content-Type: text/plain\r\n", DROP, 415),
        (bearer(CHANGE) + "Content-Type: application/jsonp\r\n", DROP, 415),
        (good.clone() + "Origin: http://example.com\r\n", DROP, 403),
        (good.clone() + "Origin: http://localhost:9261\r\n", DROP, 403),
        (good.clone() + "Origin: https://localhost:9260\r\n", DROP, 403),
        (good.clone() + "Origin: null\r\n", DROP, 403),
        (good.clone() + "Sec-Fetch-Site: same-site\r\n", DROP, 403),
        (good.clone() + "Sec-Fetch-Site: cross-site\r\n", DROP, 403),
        (good.clone(), "", 400),
        (good.clone(), "{\"request\":\"drop-session\"}", 400),
        (good.clone(), "{\"request\":\"drop-session\",\"tsih\":7,\"more\":1}", 400),
        (good.clone(), "{\"request\":\"reboot\"}", 400),
        (good.clone(), "{\"request\":\"dump\"}", 403),
        (good.clone(), "{\"request\":\"detach\"}", 403),
        (bearer(READ) + json, "{\"request\":\"remove-lun\",\"lun\":0}", 403),
        (good.clone(), "{\"request\":\"add-lun\",\"lun\":{\"store\":\"file:/x\"}}", 403),
        (good.clone(), "{\"request\":\"add-lun\",\"lun\":{\"stores\":\"memory:1M\"}}", 400),
        (good.clone(), &long, 413),
    ] {
        let (status, said) = order(&http, &lines, body);
        assert_eq!(status, wanted, "{lines}: {body}: {said}");
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(body.starts_with("{\"reply\":\"error\"") || lines.contains("Sec-"), "{said}");
        let challenge = head.to_lowercase().contains("www-authenticate: bearer");
        assert_eq!(challenge, wanted == 401, "{head}");
    }
    let said = said_to(&http, b"GET /api/v1/orders HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(status(&said) == 405 && said.to_lowercase().contains("\r\nallow: post\r\n"), "{said}");
    std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
    let (status, said) = order(&http, &good, DROP);
    assert!(status == 503 && said.contains("chmod 600"), "{said}");
    assert!(clerk.asked.lock().unwrap().is_empty(), "none was carried out");
    let givers = std::mem::take(&mut *clerk.givers.lock().unwrap());
    assert_eq!(givers.len(), 4);
    for giver in givers {
        assert!(giver.peer.is_some_and(|peer| peer.ip().is_loopback()), "{giver:?}");
        assert_eq!(giver.token, "change, line 1");
    }
    let page = get(&http, "/metrics").1;
    for (reason, count) in
        [("no token", 4), ("unknown token", 1), ("token for less", 2), ("tokens unreadable", 1)]
    {
        let line = format!("\nlunwire_http_denied_total{{reason=\"{reason}\"}} {count}\n");
        assert!(page.contains(&line), "{line}{page}");
    }
    target.stop(Duration::ZERO).unwrap();
}

/// Who has a token for all that is served opens nothing else by it.
#[test]
fn a_lun_comes_over_http_where_it_reaches_nothing() {
    let may = |store: &str| {
        let lun = format!("{{\"store\":\"{store}\"}}");
        let line = format!("{{\"request\":\"add-lun\",\"lun\":{lun}}}");
        crate::orders::is_for_all(&Request::of_line(line.as_bytes()).unwrap())
    };
    for store in [
        "memory:1M",
        "null:1T",
        "memory:1M,readonly,log",
        "stripe:64K(memory:1M;memory:1M)",
        "stripe:64K(memory:1M;memory:1M),delay=1ms",
    ] {
        assert!(may(store), "{store}");
    }
    for store in [
        "file:/etc/shadow",
        "file:/srv/new,size=1M,readonly",
        "iso:/srv/a.iso",
        "rbd:pool/image",
        "iscsi://192.0.2.1/iqn.2026-01.com.example:a/0",
        "scsi:/dev/sg0",
        "stripe:64K(memory:1M;file:/srv/a)",
        "stripe:64K(memory:1M;memory:1M;rbd:pool/image),readonly",
        "memory:1M file:/srv/a",
        "memory:1M,keyring=/etc/shadow",
        "memory:",
        "",
    ] {
        assert!(!may(store), "{store}");
    }
}

#[test]
fn without_tokens_nothing_is_changed() {
    let (http, target, clerk) = (port(), Arc::new(target()), Arc::new(Clerk::default()));
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let lines = format!("Authorization: Bearer {CHANGE}\r\nContent-Type: application/json\r\n");
    let (status, said) = order(&http, &lines, "{\"request\":\"reload\"}");
    assert!(status == 403 && said.contains("try: http-token-file"), "{said}");
    assert!(clerk.asked.lock().unwrap().is_empty());
    target.stop(Duration::ZERO).unwrap();
}

/// Longer than a connection may be silent.
#[test]
fn an_order_may_take_its_time_and_one_that_does_not_come_has_an_end() {
    let file = file(&format!("change {CHANGE}\n"), 0o600);
    let http = port_with(Some(Tokens::of(file.path()).unwrap()));
    let takes = LIMITS.silence + Duration::from_millis(700);
    let clerk = Arc::new(Clerk { takes, ..Clerk::default() });
    let target = Arc::new(target());
    http.serves(Arc::clone(&target), clerk as Arc<dyn Desk>);
    let lines = format!("Authorization: Bearer {CHANGE}\r\nContent-Type: application/json\r\n");
    let (status, said) = order(&http, &lines, "{\"request\":\"drop-session\",\"tsih\":1}");
    assert_eq!(status, 200, "{said}");
    let mut half = connect(&http);
    let head = format!("POST /api/v1/orders HTTP/1.1\r\nContent-Length: 9\r\n{lines}\r\n{{");
    half.write_all(head.as_bytes()).unwrap();
    assert_eq!(get(&http, "/healthz").0, 200, "others are served meanwhile");
    drop(half);
    target.stop(Duration::ZERO).unwrap();
}

/// It needs no token to have many.
#[test]
fn who_holds_all_connections_cuts_no_order_off() {
    let file = file(&format!("change {CHANGE}\n"), 0o600);
    let http = port_with(Some(Tokens::of(file.path()).unwrap()));
    let takes = Duration::from_millis(500);
    let (target, clerk) = (Arc::new(target()), Arc::new(Clerk { takes, ..Clerk::default() }));
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let lines = format!("Authorization: Bearer {CHANGE}\r\nContent-Type: application/json\r\n");
    std::thread::scope(|scope| {
        let given = scope.spawn(|| order(&http, &lines, "{\"request\":\"reload\"}"));
        while clerk.asked.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let held: Vec<_> = (0..3 * LIMITS.connections).map(|_| connect(&http)).collect();
        assert_eq!(given.join().unwrap().0, 200);
        drop(held);
    });
    target.stop(Duration::ZERO).unwrap();
}

#[test]
fn an_order_that_waits_is_not_begun_when_the_daemon_stops() {
    let file = file(&format!("change {CHANGE}\n"), 0o600);
    let http = port_with(Some(Tokens::of(file.path()).unwrap()));
    let takes = Duration::from_millis(700);
    let (target, clerk) = (Arc::new(target()), Arc::new(Clerk { takes, ..Clerk::default() }));
    http.serves(Arc::clone(&target), Arc::clone(&clerk) as Arc<dyn Desk>);
    let lines = format!("Authorization: Bearer {CHANGE}\r\nContent-Type: application/json\r\n");
    let give = || order(&http, &lines, "{\"request\":\"reload\"}").0;
    std::thread::scope(|scope| {
        let given = [scope.spawn(give), scope.spawn(give)];
        std::thread::sleep(takes / 2);
        http.stops();
        let mut heard = given.map(|one| one.join().unwrap());
        heard.sort_unstable();
        assert_eq!(heard, [200, 503]);
    });
    assert_eq!(clerk.asked.lock().unwrap().len(), 1);
    target.stop(Duration::ZERO).unwrap();
}
