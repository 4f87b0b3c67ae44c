//! Many at once under one name.

use serde_json::json;

use super::{entries, intact};
use crate::http::{TOOL, external};
use crate::support::{Api, Options, StoreUnderTest, blocking, bodies, both_stores};

both_stores!(of_many_contents_under_one_new_id_one_is_recorded, a_verification_beside_writers_finds_no_damage);

async fn of_many_contents_under_one_new_id_one_is_recorded(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    for round in 0..5 {
        let id = format!("op-{round}");
        // 50 contents in 64 posts: 15 say the same, 49 each say something of their own.
        let body = |n: usize| {
            let content = n.saturating_sub(14);
            bodies::with(bodies::claiming(&id, TOOL), &json!({ "arguments": { "operation": id, "content": content } }))
        };
        // In another order each time, so that any of them may come first.
        let posts = (0..64).map(|n| {
            let number = (n * 27 + round * 13) % 64;
            let (api, body) = (&api, body(number));
            async move { (number, api.intent(&body).await) }
        });
        let answers = futures_util::future::join_all(posts).await;
        let winners: Vec<_> = answers.iter().filter(|(_, answer)| answer.json["directive"] == "dispatch").collect();
        let [(winner, granted)] = winners[..] else { panic!("{} dispatches", winners.len()) };
        assert_eq!(granted.status, 201);
        let same = |number: usize| number.saturating_sub(14) == winner.saturating_sub(14);
        for (number, answer) in answers.iter().filter(|(number, _)| number != winner) {
            if same(*number) {
                answer.clone().expect(200).directive("wait");
                assert_eq!(answer.json["arguments_digest"], granted.json["arguments_digest"]);
            } else {
                answer.clone().problem(422, "operation-reused");
            }
        }
        assert_eq!(api.journal(&id).await.len(), 1);
        let recorded = api.get(&id).await.expect(200);
        assert_eq!(recorded.json["arguments_digest"], granted.json["arguments_digest"]);
    }
    assert_eq!(entries(&server), 5, "nothing of the losers is stored");
    assert_eq!(api.pages("/api/effects?limit=200").await.len(), 5);
}

async fn a_verification_beside_writers_finds_no_damage(store: StoreUnderTest) {
    let server = std::sync::Arc::new(store.server(Options::default()));
    let api = &Api::of(&server, "t");
    external(api).await;
    let over = &std::sync::atomic::AtomicBool::new(false);
    let writers = (0..8).map(|number| async move {
        for round in 0.. {
            for n in 0..40 {
                if over.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                // Each round adds entries to the same effects, and some new effects.
                let id = format!("op-{number}-{n}");
                let answer = api.intent(&bodies::claiming(&id, TOOL)).await;
                if answer.json["directive"] == "dispatch" {
                    let report = if round < 40 { bodies::not_sent(&answer) } else { bodies::succeeded(&answer) };
                    api.outcome(&id, &report).await.expect(200);
                }
            }
        }
    });
    let verifier = async {
        for _ in 0..12 {
            let server = std::sync::Arc::clone(&server);
            blocking(move || intact(&server)).await;
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    tokio::join!(futures_util::future::join_all(writers), verifier);
    assert!(entries(&server) > 100, "the writers wrote");
}
