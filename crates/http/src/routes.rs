// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which path is answered by what.

use std::error::Error;

use hyper::Method;
use hyper::Request;
use hyper::Response;
use hyper::StatusCode;
use hyper::body::Body;
use hyper::body::Bytes;
use hyper::header;
use hyper::header::HeaderValue;

use crate::access::Denied;
use crate::access::Reader;
use crate::api;
use crate::api::How;
use crate::api::Resource;
use crate::api::Told;
use crate::connections::Standing;
use crate::health::Health;
use crate::looks::Looks;
use crate::metrics::Format;
use crate::orders;
use crate::orders::Refusal;
use crate::page;
use crate::page::File;
use crate::query;
use crate::streams;
use crate::streams::Place;
use crate::streams::Said;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// What is there, for who asks for something else.
const PATHS: &str = "no such page; there are /, /metrics, /healthz, /readyz and what \
    /api/v1/openapi.json describes\n";

/// What comes with each answer. That scripts of other sites may read it is told by none.
const HEADERS: [(&str, &str); 6] = [
    ("cache-control", "no-store"),
    ("content-security-policy", page::POLICY),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Where a browser says whose page has asked.
const SITE: &str = "sec-fetch-site";

/// Where a browser says what it has heard of before its stream was lost.
const LAST_EVENT: &str = "last-event-id";

/// What there is.
#[derive(Clone, Copy, Debug)]
enum Page {
    Metrics,
    Health,
    Readiness,
    Description,
    Answer(Resource),
    Stream,
    File(File),
}

impl Page {
    /// Whether everybody gets it who reaches the port: a page that asks for a token must come
    /// before there is one, and who probes has none. What is wrong a probe is not told then.
    const fn is_for_all(self) -> bool {
        matches!(self, Self::Health | Self::Readiness | Self::Description | Self::File(_))
    }

    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/metrics" => Self::Metrics,
            "/healthz" => Self::Health,
            "/readyz" => Self::Readiness,
            api::DESCRIPTION_PATH => Self::Description,
            streams::PATH => Self::Stream,
            path => match Resource::at(path) {
                Some(resource) => Self::Answer(resource),
                None => Self::File(File::at(path)?),
            },
        })
    }
}

/// The answer to a request. Nobody reads a body but that of an order.
pub(crate) async fn answer<B>(looks: &Looks, request: Request<B>) -> Response<Said>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let gate = looks.gate();
    if !gate.is_meant(&request) {
        return response(StatusCode::MISDIRECTED_REQUEST, TEXT, gate.right_names().into());
    }
    let path = request.uri().path();
    if path.starts_with(api::ROOT) && is_of_another_site(&request) {
        let said = "no page of another site may ask\n";
        return response(StatusCode::FORBIDDEN, TEXT, said.into());
    }
    if path == orders::PATH {
        let order = match query::nothing(request.uri().query()) {
            Ok(()) => orders::of(looks, request).await,
            Err(refusal) => Err(refusal),
        };
        return match order {
            Ok((order, giver)) => {
                let mut answer = told(looks.order(order, giver).await);
                answer.extensions_mut().insert(Standing::Known);
                answer
            }
            Err(refusal) => {
                gate.count(&refusal);
                refused(refusal)
            }
        };
    }
    let Some(page) = Page::at(path) else {
        return response(StatusCode::NOT_FOUND, TEXT, PATHS.into());
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let said = "GET and HEAD are right here\n";
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, said.into());
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let reader = gate.reader(&request);
    if let Err(refusal) = &reader {
        // Who shows none to a page that is for all asks for no more than that.
        if !page.is_for_all() || refusal.denied != Some(Denied::Missing) {
            gate.count(refusal);
        }
        if !page.is_for_all() {
            return refused(refusal.clone());
        }
    }
    let mut answer = answer_of(page, looks, &request, reader.is_ok()).await;
    if let Ok(Reader::Known) = reader {
        answer.extensions_mut().insert(Standing::Known);
    }
    answer
}

/// `tells_why`: a probe is told what is wrong.
async fn answer_of<B>(
    page: Page,
    looks: &Looks,
    request: &Request<B>,
    tells_why: bool,
) -> Response<Said> {
    match page {
        Page::File(file) => response(StatusCode::OK, file.kind, file.text.into()),
        Page::Description => match query::nothing(request.uri().query()) {
            Ok(()) => response(StatusCode::OK, JSON, api::DESCRIPTION.into()),
            Err(refusal) => refused(refusal),
        },
        Page::Stream => stream(looks, request).unwrap_or_else(refused),
        Page::Answer(resource) => {
            let query = request.uri().query();
            let after = match resource {
                Resource::Events => query::after(query),
                _ => query::nothing(query).map(|()| 0),
            };
            match after {
                Ok(after) => told(looks.answer(resource, after).await),
                Err(refusal) => refused(refusal),
            }
        }
        Page::Metrics => {
            let format = format(request);
            match looks.now().await.page(format) {
                Some(page) => response(StatusCode::OK, format.content_type(), page),
                None => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "no metrics\n".into()),
            }
        }
        Page::Health => probe(looks.now().await.health(), tells_why),
        Page::Readiness => probe(looks.now().await.readiness(), tells_why),
    }
}

/// Whether a browser says that a page from somewhere else asks. It could not read the answer, but
/// it could see how long that takes, and ask without end.
fn is_of_another_site<B>(request: &Request<B>) -> bool {
    let mut sites = request.headers().get_all(SITE).into_iter();
    sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// OpenMetrics, unless somebody would rather have the older format. Who takes neither gets it, too.
fn format<B>(request: &Request<B>) -> Format {
    let accepted = request.headers().get_all(header::ACCEPT).into_iter();
    let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let new = quality(&accepted, ["application/openmetrics-text", "application/*", "*/*"]);
    match new < quality(&accepted, ["text/plain", "text/*", "*/*"]) {
        true => Format::Prometheus,
        false => Format::OpenMetrics,
    }
}

/// How much somebody wants a kind of an answer, by the first of its names that he says (RFC 9110
/// section 12.5.1).
fn quality(accepted: &[&str], names: [&str; 3]) -> f32 {
    let ranges = || accepted.iter().flat_map(|value| value.split(','));
    let of_name = |name: &str| {
        let said = ranges().filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            if !parts.next()?.eq_ignore_ascii_case(name) {
                return None;
            }
            let weight = parts.filter_map(|part| part.split_once('='));
            let mut weight = weight.filter(|(key, _)| key.trim().eq_ignore_ascii_case("q"));
            let weight = weight.next().map_or(Some(1.0), |(_, weight)| weight.trim().parse().ok());
            // What is no number weighs as if it were not said.
            Some(weight.filter(|weight: &f32| weight.is_finite()).unwrap_or(1.0))
        });
        said.reduce(f32::max)
    };
    names.into_iter().find_map(of_name).unwrap_or(0.0)
}

fn told(Told { how, text }: Told) -> Response<Said> {
    let status = match how {
        How::Answered => StatusCode::OK,
        How::Refused => StatusCode::CONFLICT,
        How::Nobody => StatusCode::SERVICE_UNAVAILABLE,
    };
    response(status, JSON, text)
}

/// What is new from now on, and what has happened behind the last event that was heard of.
fn stream<B>(looks: &Looks, request: &Request<B>) -> Result<Response<Said>, Refusal> {
    let kind = "text/event-stream";
    let wanted = query::wanted(request.uri().query())?;
    if request.method() == Method::HEAD {
        return Ok(response(StatusCode::OK, kind, Bytes::new()));
    }
    let last = request.headers().get(LAST_EVENT).map(HeaderValue::as_bytes);
    let (place, pass) = (Place::of(last.unwrap_or_default()), looks.gate().pass(request));
    let Some(said) = looks.stream(wanted, place, pass) else {
        let why = "there are enough streams; try: the other paths, now and then";
        return Ok(told(Told::nobody(why)));
    };
    let mut response = response(StatusCode::OK, kind, Bytes::new());
    *response.body_mut() = said;
    Ok(response)
}

/// What is to be otherwise about an order.
fn refused(refusal: Refusal) -> Response<Said> {
    let status = refusal.status;
    let mut response = response(status, JSON, refusal.text());
    let more = match status {
        StatusCode::METHOD_NOT_ALLOWED => (header::ALLOW, "POST"),
        StatusCode::UNAUTHORIZED => (header::WWW_AUTHENTICATE, "Bearer"),
        _ => return response,
    };
    response.headers_mut().insert(more.0, HeaderValue::from_static(more.1));
    response
}

fn probe(health: Health, tells_why: bool) -> Response<Said> {
    let status = if health.is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match health.is_well || tells_why {
        true => response(status, TEXT, health.said.into()),
        false => response(status, TEXT, "who shows a token is told why not\n".into()),
    }
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Said> {
    let mut response = Response::new(Said::whole(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
