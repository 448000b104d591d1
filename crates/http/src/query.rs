// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What may stand behind the `?` of a path of the API. What means nothing there is refused: who has
//! asked for less would take what he gets for that.

use hyper::StatusCode;

use crate::orders::Refusal;
use crate::streams::Wanted;

/// Letters of a query that an answer repeats.
const SHOWN_MAX: usize = 64;

/// Most paths know no word.
pub(crate) fn nothing(query: Option<&str>) -> Result<(), Refusal> {
    match query.unwrap_or_default() {
        "" => Ok(()),
        other => Err(refusal(other, "nothing is right here behind a ?")),
    }
}

/// Behind which event those are to be that are asked for.
pub(crate) fn after(query: Option<&str>) -> Result<u64, Refusal> {
    let query = query.unwrap_or_default();
    if query.is_empty() {
        return Ok(0);
    }
    let number = query.strip_prefix("after=");
    let number = number.filter(|number| number.bytes().all(|digit| digit.is_ascii_digit()));
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| refusal(query, "after=N is right here, with the number of an event"))
}

/// What a stream is to tell.
pub(crate) fn wanted(query: Option<&str>) -> Result<Wanted, Refusal> {
    match query.unwrap_or_default() {
        "" => Ok(Wanted::All),
        "only=events" => Ok(Wanted::Events),
        other => Err(refusal(other, "only=events is right here")),
    }
}

fn refusal(query: &str, right: &str) -> Refusal {
    let shown: String = query.chars().take(SHOWN_MAX).collect();
    let why = format!("?{shown} is not understood: {right}");
    Refusal::new(StatusCode::BAD_REQUEST, why)
}
