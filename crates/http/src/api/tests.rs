// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description, held against answers that have all there may be, and the least there is.

use std::collections::BTreeSet;

use control::admin::Capture;
use control::admin::Change;
use control::admin::Connection;
use control::admin::Difference;
use control::admin::EndedSession;
use control::admin::Event;
use control::admin::EventKind;
use control::admin::EventLevel;
use control::admin::Events;
use control::admin::Image;
use control::admin::Iser;
use control::admin::IwarpStream;
use control::admin::LayerTime;
use control::admin::Layers;
use control::admin::Limit;
use control::admin::Load;
use control::admin::Lun;
use control::admin::LunLoad;
use control::admin::NewLun;
use control::admin::PortGroup;
use control::admin::RdmaStream;
use control::admin::Refused;
use control::admin::Reloaded;
use control::admin::Session;
use control::admin::SessionLoad;
use control::admin::Station;
use control::admin::StationConnection;
use control::admin::Status;
use control::admin::Target;
use control::admin::Waiting;
use serde_json::Value;

use super::*;
use crate::orders;

/// How much there is of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Much {
    /// All that there may be.
    All,
    /// One of each list, and nothing that may be missing.
    Least,
}

impl Much {
    fn some<T>(self, value: T) -> Option<T> {
        (self == Self::All).then_some(value)
    }

    /// Of a list that is not told if it is empty.
    fn each<T>(self, value: T) -> Vec<T> {
        self.some(value).into_iter().collect()
    }
}

/// What is answered to each question.
fn answer(resource: Resource, much: Much) -> Reply {
    match resource {
        Resource::Status => Reply::Status(status(much)),
        Resource::Sessions => {
            let (sessions, silent_reactors) = (vec![session(much)], much.each(1));
            Reply::Sessions { sessions, silent_reactors }
        }
        Resource::Load => Reply::Load(load(much)),
        Resource::Layers => Reply::Layers(Layers {
            cycles_per_second: 1,
            commands: 2,
            layers: vec![layer()],
            payload: 3,
            copied: 4,
            stored: 5,
            digested: 6,
        }),
        Resource::PortGroups => Reply::PortGroups {
            groups: vec![PortGroup {
                target: "a".into(),
                lun: 0,
                group: 1,
                preferred: true,
                state: "standby".into(),
                portal_groups: vec![1],
                fixed: false,
            }],
        },
        Resource::Difference => Reply::Reloaded(reloaded(much)),
        Resource::Events => Reply::Events(Events {
            since_ms: 1,
            events: vec![event(much)],
            last: 2,
            more: true,
            forgotten: 3,
            left_out: 4,
        }),
    }
}

fn event(much: Much) -> Event {
    Event {
        number: 1,
        time_ms: 2,
        kind: EventKind::TakeOver,
        level: EventLevel::Warning,
        text: "a".into(),
        peer: much.some("b".into()),
        initiator: much.some("c".into()),
        tsih: much.some(3),
        target: much.some("d".into()),
        lun: much.some(4),
        details: much.each(("e".into(), "f".into())),
    }
}

fn reloaded(much: Much) -> Reloaded {
    let ended = EndedSession {
        tsih: 1,
        initiator: "a".into(),
        target: much.some("b".into()),
        why: "c".into(),
    };
    Reloaded {
        applied: false,
        differences: vec![Difference {
            change: Change::Changed,
            what: "a".into(),
            keys: much.each("b".into()),
        }],
        refused: much.each(Refused { what: "a".into(), why: "b".into() }),
        sessions: much.each(ended),
        warnings: much.each("a".into()),
    }
}

fn layer() -> LayerTime {
    LayerTime { name: "read".into(), cycles: 1, laps: 2, lengths: vec![0, 1] }
}

fn status(much: Much) -> Status {
    Status {
        version: "1".into(),
        pid: 2,
        uptime_s: 3,
        engine: "uring".into(),
        mode: "smp".into(),
        crc32c: "table".into(),
        reactors: 4,
        portals: vec!["127.0.0.1:3260".into()],
        iser: Iser {
            provider: much.some("software iWARP".into()),
            portals: vec!["127.0.0.1:3260".into()],
            adapter_portals: much.each("192.0.2.1:3260".into()),
            connections: 5,
            registered_bytes: 6,
        },
        stations: much.each(Station {
            interface: "eth0".into(),
            mac: "02:00:00:00:00:01".into(),
            mtu: 1500,
            frames: "xdp".into(),
            connections: vec![over_frames(Much::All), over_frames(Much::Least)],
        }),
        targets: vec![target(much)],
        sessions: 7,
        silent_reactors: much.each(1),
        limits: much.each(Limit {
            target: "a".into(),
            lun: much.some(0),
            initiator: much.some("*".into()),
            iops: much.some(1),
            bandwidth: much.some(2),
            sessions: much.some(3),
            held: 4,
            begun: 5,
            delayed: 6,
        }),
        http: much.some("127.0.0.1:9260".into()),
        http_tls: true,
        capture: much.some(Capture {
            file: "a".into(),
            bytes: 1,
            segments: 2,
            lost: 3,
            ended: Some("it is full".into()),
        }),
        sandbox: much.each("calls".into()),
    }
}

fn over_frames(much: Much) -> StationConnection {
    StationConnection {
        peer: "02:00:00:00:00:02".into(),
        payload_bytes: 1400,
        sent_bytes: 1,
        acknowledged_bytes: 2,
        received_bytes: 3,
        in_flight_bytes: 4,
        window_bytes: 5,
        resent_frames: 6,
        round_trip_us: much.some(7),
    }
}

fn target(much: Much) -> Target {
    let lun = Lun {
        number: 1,
        store: "memory:1M".into(),
        serial: "a".into(),
        initiators: much.some(vec!["b".into()]),
        bytes: 1 << 20,
        block: 512,
        read_only: false,
        protection: much.some(1),
        lost_writes: false,
        file_lost: much.some("deleted".into()),
        waiting: much.some(Waiting { who: "store".into(), commands: 1, oldest_s: 2, busy: true }),
        shrunk: much.some(3),
        image: much.some(Image {
            cache: "none".into(),
            others: Some(1),
            shut_out: false,
            lost: Some("moved".into()),
        }),
    };
    let (name, access) = ("a".into(), vec!["b".into()]);
    Target { name, access, authentication: "off".into(), luns: vec![lun] }
}

fn rdma(much: Much) -> RdmaStream {
    let iwarp =
        IwarpStream { crc: true, markers_sent: false, markers_received: false, fpdu_bytes: 1400 };
    RdmaStream {
        provider: "software iWARP".into(),
        device: much.some("a".into()),
        ird: 1,
        ord: 2,
        iwarp: much.some(iwarp),
        stags: 3,
        registered_bytes: 4,
    }
}

fn session(much: Much) -> Session {
    let connection = Connection {
        cid: 0,
        peer: "127.0.0.1:1".into(),
        portal: "127.0.0.1:3260".into(),
        transport: "tcp".into(),
        rdma: much.some(rdma(much)),
    };
    Session {
        tsih: 1,
        initiator: "a".into(),
        initiator_alias: much.some("b".into()),
        isid: "400000000000".into(),
        target: much.some("c".into()),
        discovery: false,
        age_s: 1,
        reactor: 0,
        tasks: 2,
        held: 1,
        commands: 3,
        read_bytes: 4,
        written_bytes: 5,
        negotiated: vec![("HeaderDigest".into(), "None".into())],
        connections: vec![connection],
    }
}

fn load(much: Much) -> Load {
    Load {
        uptime_ms: 1,
        cycles_per_second: 2,
        layers: vec![layer()],
        luns: vec![LunLoad {
            target: "a".into(),
            lun: 1,
            reads: 1,
            writes: 2,
            read_bytes: 3,
            written_bytes: 4,
            errors: 5,
            times: vec![layer()],
        }],
        luns_left_out: 6,
        sessions: vec![SessionLoad {
            tsih: 1,
            initiator: "a".into(),
            target: much.some("b".into()),
            age_s: 1,
            tasks: 2,
            commands: 3,
            read_bytes: 4,
            written_bytes: 5,
            times: vec![layer()],
        }],
        sessions_left_out: 7,
        silent_reactors: much.each(8),
    }
}

/// Holds values against what is said of them.
struct Reading<'a> {
    description: &'a Value,
    /// What was met of it.
    met: BTreeSet<String>,
}

impl Reading<'_> {
    fn read(&mut self, schema: &Value, value: &Value, much: Much, place: &str) {
        if let Some(name) = schema["$ref"].as_str() {
            let found = self.description.pointer(name.trim_start_matches('#'));
            let found = found.unwrap_or_else(|| panic!("{place}: there is no {name}"));
            self.met.insert(name.to_owned());
            return self.read(found, value, much, place);
        }
        if let Some([one, null]) = schema["anyOf"].as_array().map(Vec::as_slice) {
            assert_eq!(null["type"], "null", "{place}");
            if !value.is_null() {
                self.read(one, value, much, place);
            }
            return;
        }
        if let Some(word) = schema.get("const") {
            return assert_eq!(word, value, "{place}");
        }
        assert_is(schema, value, place);
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let of = schema["prefixItems"].get(at).unwrap_or_else(|| &schema["items"]);
                    self.read(of, item, much, &format!("{place}/{at}"));
                }
            }
            Value::Object(fields) => {
                let told: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
                let properties = schema["properties"].as_object().unwrap();
                let wanted: BTreeSet<&str> = match much {
                    Much::All => properties.keys().map(String::as_str).collect(),
                    Much::Least => words(&schema["required"]).collect(),
                };
                assert_eq!(told, wanted, "{place}: {much:?}");
                for (name, field) in fields {
                    self.read(&properties[name], field, much, &format!("{place}/{name}"));
                }
            }
            _ => {}
        }
    }
}

fn words(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Whether the value is of the kind, and one of the words, that are said.
#[track_caller]
fn assert_is(schema: &Value, value: &Value, place: &str) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_said = schema["type"] == kind || words(&schema["type"]).any(|one| one == kind);
    assert!(is_said, "{place} is {value}: {schema}");
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{place}: {value}");
    }
}

#[test]
fn every_field_of_an_answer_is_described_and_no_other() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let paths = description["paths"].as_object().unwrap().keys().map(String::as_str);
    let mut all: BTreeSet<&str> = Resource::ALL.map(Resource::path).into();
    all.insert(orders::PATH);
    all.insert(crate::streams::PATH);
    assert_eq!(paths.collect::<BTreeSet<_>>(), all);
    let mut reading = Reading { description: &description, met: BTreeSet::new() };
    for resource in Resource::ALL {
        let get = &description["paths"][resource.path()]["get"];
        let schema = &get["responses"]["200"]["content"]["application/json"]["schema"];
        for much in [Much::All, Much::Least] {
            let value = serde_json::to_value(answer(resource, much)).unwrap();
            reading.read(schema, &value, much, resource.path());
        }
    }
    let mut of = |name: &str, value: &Value| {
        let schema = serde_json::json!({ "$ref": format!("#/components/schemas/{name}") });
        reading.read(&schema, value, Much::Least, name);
    };
    of("RdmaStream", &serde_json::to_value(rdma(Much::Least)).unwrap());
    let ended = EndedSession { target: None, ..reloaded(Much::All).sessions.remove(0) };
    of("EndedSession", &serde_json::to_value(ended).unwrap());
    of("Error", &serde_json::to_value(Reply::Error { message: "a".into() }).unwrap());
    of("Done", &serde_json::to_value(Reply::Done).unwrap());
    let resized = Reply::Resized {
        target: "a".into(),
        lun: 1,
        before: 2,
        now: 3,
        warnings: vec!["b".into()],
    };
    of("Resized", &serde_json::to_value(resized).unwrap());
    let disk = target(Much::Least).luns.remove(0);
    let (a, warnings) = ("a".to_owned(), vec!["b".into()]);
    let added = Reply::Added { target: a.clone(), lun: 1, disk, for_nobody: false, warnings };
    of("Added", &serde_json::to_value(added).unwrap());
    let removed = Reply::Removed { target: a, lun: 1, warnings: vec!["b".into()] };
    of("Removed", &serde_json::to_value(removed).unwrap());
    reading.met.insert("#/components/schemas/NewLun".into());
    reading.met.insert("#/components/schemas/Order".into());
    let described = description["components"]["schemas"].as_object().unwrap();
    let described = described.keys().map(|name| format!("#/components/schemas/{name}"));
    assert_eq!(reading.met, described.collect(), "what nobody is answered");
}

/// Orders with all that they may have, and with the least.
fn given() -> Vec<(Much, Request)> {
    let of = |much: Much| {
        let (lun, group, state) = (much.some(0), 1, "standby".to_owned());
        let all = much == Much::All;
        let orders = [
            Request::Reload { dry_run: all, destroy_data: all },
            Request::DropSession { tsih: 1 },
            Request::LogoutSession { tsih: 1, timeout_s: 2 },
            Request::SetPortGroup { target: "a".into(), lun, group, state },
            Request::ResizeLun { target: much.some("a".into()), lun: 0, bytes: 1, shrink: all },
            Request::AddLun {
                target: much.some("a".into()),
                number: much.some(1),
                lun: NewLun {
                    store: "memory:1M".into(),
                    block: much.some(512),
                    protection: much.some(1),
                    serial: much.some("b".into()),
                    space_warning: much.some("1M".into()),
                    initiators: much.each("c".into()),
                },
            },
            Request::RemoveLun { target: much.some("a".into()), lun: 0, destroy_data: all },
            Request::SetLimit {
                target: much.some("a".into()),
                lun: much.some(0),
                initiator: much.some("*".into()),
                iops: much.some(1),
                bandwidth: much.some(2),
                sessions: much.some(3),
            },
        ];
        orders.map(|order| (much, order))
    };
    of(Much::All).into_iter().chain(of(Much::Least)).collect()
}

/// What is null, or a list of nothing, may be missing.
fn leave_out(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields
            .retain(|_, field| !field.is_null() && field.as_array().is_none_or(|a| !a.is_empty()));
        fields.values_mut().for_each(leave_out);
    }
}

#[test]
fn orders_are_taken_as_they_are_described() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let described = &description["components"]["schemas"]["Order"]["oneOf"];
    for (much, order) in given() {
        assert!(orders::is_for_all(&order), "{order:?}");
        let mut value = serde_json::to_value(&order).unwrap();
        let tag = &value["request"];
        let mut all = described.as_array().unwrap().iter();
        let schema = all.find(|one| one["properties"]["request"]["const"] == *tag).unwrap();
        assert_eq!(schema["additionalProperties"], false, "{tag}");
        if much == Much::Least {
            leave_out(&mut value);
            assert_eq!(serde_json::from_value::<Request>(value.clone()).unwrap(), order);
        }
        let mut reading = Reading { description: &description, met: BTreeSet::new() };
        reading.read(schema, &value, much, &format!("{order:?}"));
    }
    assert_eq!(described.as_array().unwrap().len() * 2, given().len());
}

#[test]
fn words_of_events_are_those_of_the_description() {
    let description: Value = serde_json::from_str(DESCRIPTION).unwrap();
    let described = &description["components"]["schemas"]["Event"]["properties"];
    let kinds = EventKind::ALL.map(|kind| serde_json::to_value(kind).unwrap());
    assert_eq!(described["kind"]["enum"], Value::from(kinds.to_vec()));
    for (kind, word) in EventKind::ALL.into_iter().zip(&kinds) {
        assert_eq!(*word, kind.word());
    }
    let levels = [EventLevel::Info, EventLevel::Warning, EventLevel::Error];
    let levels = levels.map(|level| serde_json::to_value(level).unwrap());
    assert_eq!(described["level"]["enum"], Value::from(levels.to_vec()));
}

#[test]
fn an_answer_that_is_too_long_is_none() {
    let told = |len: usize| {
        let text = "a".repeat(len);
        Told::of(&Reply::Dumped { text, warnings: Vec::new() })
    };
    assert_eq!(told(1000).how, How::Answered);
    let long = told(ANSWER_LEN_MAX);
    assert_eq!(long.how, How::Nobody);
    assert!(long.text.len() < 1000 && long.text.ends_with(b"}\n"));
    let refused = Told::of(&Reply::Error { message: "no".into() });
    assert_eq!(refused.how, How::Refused);
}

#[test]
fn nothing_that_can_be_asked_changes_anything() {
    for (place, resource) in Resource::ALL.into_iter().enumerate() {
        match resource.request(7) {
            Request::Status
            | Request::Sessions
            | Request::Load
            | Request::Layers
            | Request::PortGroups
            | Request::Events { after: 7 } => {}
            Request::Reload { dry_run, destroy_data } => assert!(dry_run && !destroy_data),
            other => panic!("{other:?}"),
        }
        assert!(resource.path().starts_with(ROOT));
        assert_eq!(Resource::at(resource.path()), Some(resource));
        assert_eq!(resource as usize, place, "its place among the answers");
    }
}
