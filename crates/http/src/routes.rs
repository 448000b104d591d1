// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which path is answered by what.

use std::net::IpAddr;

use http_body_util::Full;
use hyper::Method;
use hyper::Request;
use hyper::Response;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header;
use hyper::header::HeaderValue;
use hyper::http::uri::Authority;

use crate::health::Health;
use crate::looks::Looks;
use crate::metrics::Format;

const TEXT: &str = "text/plain; charset=utf-8";

/// What is there, for who asks for something else.
const PATHS: &str = "no such page; there are /metrics, /healthz and /readyz\n";

/// The answer to a request, whose body nobody reads.
pub(crate) async fn answer<B>(looks: &Looks, request: &Request<B>) -> Response<Full<Bytes>> {
    if !is_meant(request) {
        let said = "ask by an address, or localhost\n";
        return response(StatusCode::MISDIRECTED_REQUEST, TEXT, said.into());
    }
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
        return response(StatusCode::NOT_FOUND, TEXT, PATHS.into());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let said = "GET and HEAD are right here\n";
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, said.into());
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let look = looks.now().await;
    match path {
        "/metrics" => {
            let format = format(request);
            match look.page(format) {
                Some(page) => response(StatusCode::OK, format.content_type(), page),
                None => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "no metrics\n".into()),
            }
        }
        "/healthz" => probe(look.health()),
        _ => probe(look.readiness()),
    }
}

/// Whether it was sent to an address, or to `localhost`. A name that somebody else has made to lead
/// here is that of a page which wants to read in a browser what is told here.
fn is_meant<B>(request: &Request<B>) -> bool {
    let Some(host) = request.headers().get(header::HOST) else { return true };
    let Some(host) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else {
        return false;
    };
    let name = host.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// OpenMetrics, unless somebody wants the older format and does not know this one.
fn format<B>(request: &Request<B>) -> Format {
    let accepted = request.headers().get_all(header::ACCEPT).into_iter();
    let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
    let names = |kind: &str| accepted.iter().any(|value| value.contains(kind));
    match !names("application/openmetrics-text") && names("text/plain") {
        true => Format::Prometheus,
        false => Format::OpenMetrics,
    }
}

fn probe(health: Health) -> Response<Full<Bytes>> {
    let status = if health.is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response(status, TEXT, health.said.into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
