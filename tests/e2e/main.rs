//! Tests of the whole: real control plane, real kernel, real binaries.
//!
//! Run them as root; `cargo test -p leasehold-lab --test e2e -- <part of a name>` selects.

#![allow(clippy::disallowed_methods, reason = "a test measures with a clock")]

mod allocation;
mod data_path;
mod examples;
mod faults;
mod moves;
mod restart;
mod sandbox;
mod scene;

use std::process::ExitCode;

use leasehold_lab::{harness, trials};

fn main() -> ExitCode {
    harness::main(trials![
        allocation::a_service_gets_its_address_and_the_claim_that_governs_it_in_one_write,
        allocation::an_address_survives_the_operator_and_its_pool_and_nothing_is_written_again,
        allocation::an_address_is_free_after_deletion_and_after_a_change_of_type,
        allocation::services_of_other_classes_are_left_alone_and_their_addresses_are_not_given_out,
        allocation::without_the_default_class_only_services_that_name_it_are_served,
        allocation::a_status_written_by_hand_takes_nothing_from_anybody,
        allocation::services_get_the_addresses_that_they_ask_for,
        allocation::requests_that_cannot_be_met_say_what_to_change_and_recover,
        allocation::families_are_served_as_the_policy_of_the_service_says,
        allocation::malformed_pools_are_refused_with_the_entry_and_how_to_write_it,
        allocation::of_two_pools_that_overlap_the_earlier_wins_and_the_later_says_so,
        allocation::the_status_of_a_pool_counts_what_is_in_use,
        allocation::a_policy_says_whether_it_can_be_followed_and_how_many_services_it_governs,
        allocation::an_address_under_a_valid_claim_is_given_to_another_only_after_its_release,
        allocation::of_several_operators_one_works_and_another_takes_over,
        allocation::an_operator_that_was_stopped_for_long_does_not_write_when_it_goes_on,
        allocation::an_operator_without_an_api_server_waits_and_says_so,
        data_path::a_vip_that_a_node_has_is_served_by_pods_elsewhere,
        data_path::a_dead_node_is_silent_and_its_neighbours_are_not,
        examples::every_example_is_accepted_by_the_api_server,
        faults::links_are_cut_one_way_and_lose_their_carrier,
        faults::the_api_server_freezes_dies_and_comes_back_with_its_data,
        moves::a_cordoned_node_hands_its_addresses_over_and_keeps_none,
        moves::a_policy_or_a_label_that_excludes_the_owner_moves_its_addresses,
        moves::a_service_with_the_local_policy_is_owned_where_its_pods_are,
        restart::a_killed_speaker_that_is_started_again_goes_on_and_nobody_notices,
        restart::an_upgrade_of_the_owners_speaker_moves_nothing_and_breaks_no_connection,
        restart::all_speakers_are_upgraded_one_after_another_and_nothing_moves,
        sandbox::nothing_outlives_a_lab_that_is_killed,
    ])
}
