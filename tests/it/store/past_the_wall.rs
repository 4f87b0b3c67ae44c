//! The first wall alone: as a superuser, whom no policy holds, the statements themselves keep tenants apart. Behind the
//! second wall a condition that was left out would change nothing.

use super::bed::{IN_COMPANY, PAST_THE_WALL};
use super::{commits, duplicates, guards, lists, tools};
use crate::support::{StoreUnderTest, postgres};

macro_rules! past_the_wall {
    ($($room:ident::$name:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            if postgres::server().and_then(postgres::as_admin).is_none() {
                return;
            }
            PAST_THE_WALL.scope((), Box::pin($room::$name(StoreUnderTest::Postgres))).await;
            let in_company = IN_COMPANY.scope((), Box::pin($room::$name(StoreUnderTest::Postgres)));
            PAST_THE_WALL.scope((), in_company).await;
        }
    )+};
}

past_the_wall!(
    lists::nothing_of_another_tenant_is_listed_or_counted,
    commits::the_same_operation_of_two_tenants_is_two_effects,
    duplicates::the_same_act_is_open_once,
    guards::a_grant_needs_the_tool_as_it_was_seen,
    tools::revisions_stay_as_they_were_registered,
    tools::tools_are_listed_by_name_and_tenant,
    tools::a_tool_in_use_stays,
    tools::a_change_is_of_one_tenant_s_tool,
);
