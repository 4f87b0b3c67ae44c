//! A dry run: what a declarative adapter would ask, and what it would make of an answer. Nothing is
//! sent and nothing is stored.

use std::collections::BTreeMap;

use super::judge::{Answer, Judgement, judge};
use super::{judge_within, render};
use crate::config::{HIDDEN, Secret};
use crate::domain::adapter::{NoAnswer, Question};
use crate::domain::declarative::Inquiry;
use crate::domain::declarative::subject::Subject;
use crate::domain::time::Timestamp;
use crate::limits;

/// A request as it would be sent, its secrets hidden.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The method.
    pub method: &'static str,
    /// The URL.
    pub url: String,
    /// The headers; a secret shows as `[hidden]`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<String>,
}

/// What came of a dry run.
#[derive(Debug)]
pub struct DryRun {
    /// The request, or why there is none.
    pub request: Result<Rendered, NoAnswer>,
    /// The rule and what it says, or why there is no answer.
    pub judgement: Result<Judgement, NoAnswer>,
}

/// Renders and judges.
pub async fn dry_run(
    question: Question,
    inquiry: Inquiry,
    subject: Subject,
    (status, headers, body): (u16, BTreeMap<String, String>, Vec<u8>),
    now: Timestamp,
) -> DryRun {
    let mut hide = |_: &str, _: &str| Some(Secret::new(HIDDEN.to_owned()));
    let filled = match render::render(&inquiry, &subject, &mut hide) {
        Ok(filled) => filled,
        Err(reason) => return DryRun { request: Err(reason), judgement: Err(reason) },
    };
    let answer = Answer::from_parts(status, headers, &body, (now, filled.source));
    let judgement = match answer {
        Ok(answer) => {
            let work = move |budget| judge(&inquiry, question, &subject, &answer, budget);
            judge_within(limits::DRY_RUN_SECONDS, work).await
        }
        Err(reason) => Err(reason),
    };
    let request =
        Rendered { method: filled.method.as_str(), url: filled.url, headers: filled.headers, body: filled.body };
    DryRun { request: Ok(request), judgement }
}
