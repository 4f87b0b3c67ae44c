//! How many may listen in one process, whoever they are.

use std::sync::Arc;

use actonce::domain::ids::Tenant;
use actonce::http::problem::{Problem, ProblemType};
use actonce::service::events::hub::Listener;

use crate::store::bed::Bed;
use crate::store::engine::{Running, service_on};
use crate::support::{StoreUnderTest, both_stores};

both_stores!(listeners_of_a_process_are_bounded);

async fn listeners_of_a_process_are_bounded(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let running = Running::on(Arc::clone(&bed.store)).await;
    let service = Arc::new(service_on(&bed.store, &running.engine));
    service.bound_event_listeners(6);
    let listen = |n: usize| service.listen_to_events(&Tenant::new(&format!("tenant {n}")).unwrap());
    // Three tenants with two each, none of them near a bound of its own.
    let mut listeners: Vec<Listener> = (0..6).map(|n| listen(n % 3).unwrap()).collect();
    assert_eq!(service.event_listeners(), 6);
    for tenant in [0, 7] {
        let problem = Problem::from(listen(tenant).unwrap_err());
        assert_eq!(problem.kind(), ProblemType::Capacity);
        let document = serde_json::to_value(&problem).unwrap();
        assert_eq!((&document["status"], &document["retry_after_seconds"]), (&503.into(), &1.into()), "{document}");
    }
    assert_eq!(service.event_listeners(), 6, "who is refused takes no place");
    drop(listeners.pop());
    listeners.push(listen(7).unwrap());
    assert!(listen(8).is_err());
    drop(listeners);
    assert_eq!(service.event_listeners(), 0);
}
