//! Many at once under one name.

use serde_json::json;

use super::entries;
use crate::http::{TOOL, external};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(of_many_contents_under_one_new_id_one_is_recorded);

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
