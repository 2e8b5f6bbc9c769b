//! Allocation against the real API server: the operator's process, and Services and pools as users
//! write them. No node is needed.
//!
//! The rows of the decision share one control plane and one operator, and take turns, for pools are
//! the cluster's. They hold in any order: each runs once in the order of the list, and once in a
//! random one. What breaks the API server or stops operators has a control plane of its own.

#![allow(clippy::indexing_slicing, reason = "of JSON only, where a missing field reads as null")]

mod annotations;
mod block;
mod election;
mod families;
mod foreign;
mod kept;
mod leases;
mod order;
mod overlap;
mod pools;
mod requests;
mod resting;
mod rivals;
mod scale;
mod scopes;
mod services;
mod sharing;
mod shuffle;
mod turn;

use anyhow::Result;
use futures::future::LocalBoxFuture;
use leasehold_lab::harness::trial;
use libtest_mimic::Trial;

use turn::{SOON, Turn, addresses, annotation, condition, pool, pool_condition, versions};

const ALLOCATED_FROM: &str = "leasehold.dev/allocated-from";
const CLAIM: &str = "leasehold.dev/claim";
const ADDRESSES: &str = "leasehold.dev/addresses";
const ADDRESS_POOL: &str = "leasehold.dev/address-pool";
const SHARED_ADDRESS: &str = "leasehold.dev/shared-address";
const REASSIGN: &str = "leasehold.dev/reassign";

/// A test, and the sentence that it proves.
struct Row {
    name: &'static str,
    run: fn() -> LocalBoxFuture<'static, Result<()>>,
}

macro_rules! rows {
    ($($path:path),* $(,)?) => {
        [$(Row { name: stringify!($path), run: || Box::pin($path()) }),*]
    };
}

/// The rows of the decision.
const ROWS: &[Row] = &rows![
    services::a_service_gets_its_address_and_the_claim_that_governs_it_in_one_write,
    services::an_address_survives_its_pool_and_without_a_write_the_operator,
    services::an_address_is_free_after_deletion_and_after_a_change_of_type,
    services::services_of_other_classes_are_left_alone_and_their_addresses_are_not_given_out,
    services::a_service_that_changes_type_and_class_changes_hands,
    services::a_service_without_node_ports_gets_its_address,
    services::a_service_that_is_being_deleted_gets_nothing_and_holds_nothing_back,
    foreign::a_status_written_by_hand_takes_nothing_from_anybody,
    foreign::addresses_of_others_are_adopted_where_a_pool_gives_them_and_replaced_elsewhere,
    rivals::a_controller_that_rewrites_a_status_is_named_once_and_answered_ever_more_slowly,
    requests::services_get_the_addresses_that_they_ask_for,
    requests::requests_that_cannot_be_met_say_what_to_change_and_recover,
    requests::a_service_gets_its_addresses_from_the_pool_that_it_names,
    requests::an_address_that_has_become_wrong_is_taken_back_and_comes_back_with_the_request,
    requests::requests_for_pools_that_cannot_be_met_say_what_to_change,
    annotations::the_annotations_of_metallb_ask_for_the_same_and_ours_win,
    annotations::what_is_wrong_with_an_annotation_is_told_under_its_own_name,
    families::families_are_served_as_the_policy_of_the_service_says,
    families::a_second_family_is_topped_up_from_the_same_pool_only,
    scopes::pinned_pools_serve_those_whom_they_admit_before_general_pools_do,
    scopes::the_smaller_priority_comes_first_and_zero_last,
    scopes::a_pool_that_does_not_admit_a_service_is_closed_to_its_requests_too,
    scopes::labels_of_namespaces_and_services_open_pools_and_take_nothing_away,
    scopes::a_pool_that_is_disabled_or_not_for_all_says_so_to_those_who_ask,
    scopes::a_selector_that_cannot_be_read_closes_its_pool_and_no_other,
    kept::nobody_loses_an_address_by_an_edit_of_a_pool,
    kept::a_pool_that_is_created_again_changes_nothing,
    kept::a_kept_address_is_replaced_when_somebody_asks_for_it,
    kept::without_a_free_address_a_kept_one_is_kept_on,
    resting::a_freed_address_is_given_out_last_and_at_once_when_nothing_else_is_free,
    resting::a_service_of_the_same_name_gets_its_address_back,
    order::after_a_restart_what_is_assigned_comes_before_what_is_asked_for,
    order::those_who_wait_are_served_by_age_also_when_the_holder_only_moves,
    order::a_service_whose_status_cannot_be_written_holds_up_nobody,
    sharing::services_with_one_key_share_an_address_where_they_do_not_collide,
    sharing::services_that_want_traffic_only_where_their_pods_are_share_if_these_are_the_same,
    sharing::requests_for_an_address_of_another_say_why_it_is_not_shared,
    sharing::services_of_several_namespaces_share_where_the_pool_says_so,
    sharing::all_sharers_record_one_claim_as_long_as_one_of_them_is_left,
    sharing::a_service_that_begins_or_ends_to_share_moves_alone,
    sharing::of_sharers_that_collide_the_younger_gets_another_address,
    pools::malformed_pools_are_refused_with_the_entry_and_how_to_write_it,
    pools::the_status_of_a_pool_counts_what_is_in_use,
    pools::addresses_that_old_equipment_drops_are_neither_given_out_nor_counted,
    pools::a_policy_says_whether_it_can_be_followed_and_how_many_services_it_governs,
    overlap::of_two_pools_that_overlap_the_earlier_wins_and_the_later_says_so,
    overlap::the_earlier_pool_wins_after_a_restart_too_and_its_end_takes_nothing_away,
    leases::an_address_under_a_valid_claim_is_given_to_another_only_after_its_release,
];

/// What has a control plane of its own.
const ALONE: &[Row] = &rows![
    services::without_the_default_class_only_services_that_name_it_are_served,
    election::of_several_operators_one_works_and_another_takes_over,
    election::an_operator_that_was_killed_is_followed_at_once_by_the_next_in_its_pod,
    election::an_operator_that_was_stopped_for_long_does_not_write_when_it_goes_on,
    election::an_operator_without_an_api_server_waits_and_says_so,
    election::operators_that_run_beside_each_other_never_give_an_address_twice,
    scale::a_thousand_services_that_wait_for_a_pool_are_served_at_once,
    the_rows_of_the_decision_hold_in_any_order,
];

/// The tests that take turns.
pub fn turns() -> Vec<Trial> {
    trials(ROWS)
}

/// The tests that do not.
pub fn alone() -> Vec<Trial> {
    trials(ALONE)
}

fn trials(rows: &[Row]) -> Vec<Trial> {
    rows.iter().map(|row| trial(&format!("allocation::{}", row.name), row.run)).collect()
}

async fn the_rows_of_the_decision_hold_in_any_order() -> Result<()> {
    shuffle::run(ROWS).await
}
