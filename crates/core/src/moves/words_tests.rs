//! Every value of every field goes through its word and back; words that no front-end writes are refused by name.

use super::*;

fn locks() -> Vec<SiteLock> {
    let mut locks = Vec::new();
    let sequences = [1, 2, 255, 256, 4095, 4096, Count24::MASK].map(Count24::new);
    for sequence in sequences {
        let mut add = |state| locks.push(SiteLock { sequence, state });
        add(LockState::Idle);
        add(LockState::Frozen);
        for node in [0, 1, 4095].map(NodeNumber) {
            for (generation_low, site) in [(0, 0), (1, 111), (1023, 64)] {
                for receiver_sequence_low in [0, 1, 255] {
                    add(LockState::Gives(Gift {
                        node,
                        generation_low,
                        receiver: SiteNumber(site),
                        receiver_sequence_low,
                    }));
                }
                for cause in MoveCause::ALL {
                    for phase in [LockPhase::Take, LockPhase::Commit, LockPhase::Void] {
                        let intention = Intention {
                            node,
                            generation_low,
                            donor: SiteNumber(site),
                            cause,
                            owner: 9,
                        };
                        add(LockState::Receives(phase, intention));
                    }
                }
            }
        }
    }
    locks
}

#[test]
fn locks_go_through_their_words_and_no_two_share_one() {
    let locks = locks();
    let mut words: Vec<_> = locks.iter().map(|lock| lock.pack()).collect();
    for (lock, word) in locks.iter().zip(&words) {
        assert_eq!(SiteLock::unpack(*word), Ok(Some(*lock)), "{word:#x}");
    }
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), locks.len());
}

#[test]
fn assignments_go_through_their_words_and_no_two_share_one() {
    let mut words = Vec::new();
    for generation in [1, 1023, 1024, Count24::MASK].map(Count24::new) {
        for site in [0, 1, 111].map(SiteNumber) {
            for from in [0, 111].map(SiteNumber) {
                let on_its_way = [
                    AssignmentState::Draining { from },
                    AssignmentState::Switching { from },
                ];
                let serving = (from.0 == 0).then_some(AssignmentState::Serving);
                for state in on_its_way.into_iter().chain(serving) {
                    for (number, cause) in MoveCause::ALL.into_iter().enumerate() {
                        let assignment = Assignment {
                            generation,
                            state,
                            site,
                            cause,
                            pinned: number & 1 != 0,
                            lent: number & 2 != 0,
                            by: 819 * number as u16,
                        };
                        let word = assignment.pack();
                        assert_eq!(Assignment::unpack(word), Ok(Some(assignment)), "{word:#x}");
                        words.push(word);
                    }
                }
            }
        }
    }
    let count = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), count);
}

#[test]
fn what_agents_say_goes_through_its_word() {
    for step in AgentStep::ALL {
        for (connections, exit_code, has_hooks) in
            [(0, 0, false), (1, 255, true), (CONNECTIONS_MAX, 7, true)]
        {
            let status = AgentStatus {
                generation: Count24::new(77),
                step,
                connections,
                exit_code,
                has_hooks,
            };
            assert_eq!(AgentStatus::unpack(status.pack()), Ok(Some(status)));
        }
    }
    let many = AgentStatus {
        generation: Count24::FIRST,
        step: AgentStep::Begun,
        connections: u32::MAX,
        exit_code: 0,
        has_hooks: false,
    };
    let read = AgentStatus::unpack(many.pack()).unwrap().unwrap();
    assert_eq!(
        read.connections, CONNECTIONS_MAX,
        "more is said as the most"
    );
}

#[test]
fn a_word_that_was_never_written_is_none() {
    assert_eq!(SiteLock::unpack(0), Ok(None));
    assert_eq!(Assignment::unpack(0), Ok(None));
    assert_eq!(AgentStatus::unpack(0), Ok(None));
}

#[test]
fn words_that_no_front_end_writes_are_refused_by_the_field() {
    let lock = |word| SiteLock::unpack(word).unwrap_err().field;
    assert_eq!(lock(1 << 40 | 6 << 37), "phase");
    assert_eq!(lock(1 << 40 | 7 << 37), "phase");
    assert_eq!(lock(1 << 40 | 1), "intention");
    assert_eq!(lock(1 << 40 | FROZEN << 37 | 1 << 25), "intention");
    assert_eq!(lock(1 << 40 | TAKE << 37 | 112 << 8), "site");
    assert_eq!(lock(1 << 40 | COMMIT << 37 | 6 << 4), "cause");
    assert_eq!(lock(TAKE << 37), "sequence");
    let serving = Assignment::first(Count24::FIRST, SiteNumber(3), false).pack();
    let assignment = |word| Assignment::unpack(word).unwrap_err().field;
    assert_eq!(assignment(serving & !(0xf << 36)), "state");
    assert_eq!(assignment(serving | 4 << 36), "state");
    assert_eq!(assignment(serving & !(0xff << 20)), "from");
    assert_eq!(assignment(serving ^ (SERVING ^ DRAINING) << 36), "from");
    assert_eq!(assignment(serving | 0xf0 << 28), "site");
    assert_eq!(assignment(serving | 4 << 12), "flags");
    assert_eq!(assignment(serving | 7 << 16), "cause");
    assert_eq!(assignment(serving & 0xff_ffff_ffff), "generation");
    let agent = |word| AgentStatus::unpack(word).unwrap_err().field;
    assert_eq!(agent(5 << 36), "step");
    assert_eq!(agent(2), "spare");
    let error = SiteLock::unpack(1 << 40 | 6 << 37).unwrap_err().to_string();
    assert_eq!(
        error,
        "word 0x000001c000000000: phase is 6, expected 0 to 5"
    );
}

#[test]
fn counts_come_round_without_zero_and_keep_their_order() {
    let last = Count24::new(Count24::MASK);
    assert_eq!(last.next(), Count24::FIRST);
    assert!(Count24::FIRST.is_after(last) && !last.is_after(Count24::FIRST));
    assert!(Count24::new(1).is_after(Count24::ZERO));
    let mut count = Count24::new(Count24::MASK - 50);
    for _ in 0..100 {
        let next = count.next();
        assert_ne!(next, Count24::ZERO);
        assert!(next.is_after(count) && !count.is_after(next) && !count.is_after(count));
        count = next;
    }
    let half = Count24::new(1 << 23);
    assert!(!half.is_after(Count24::ZERO), "half way round is no order");
}

#[test]
fn a_lock_counts_up_when_it_is_taken_and_when_it_is_free_again() {
    let intention = Intention {
        node: NodeNumber(3),
        generation_low: 5,
        donor: SiteNumber(1),
        cause: MoveCause::Load,
        owner: 0,
    };
    let idle = SiteLock::idle(Count24::new(8));
    let taken = idle.taken(intention);
    let committed = taken.in_phase(LockPhase::Commit);
    assert_eq!(taken.sequence.get(), 9);
    assert_eq!(committed.sequence.get(), 9);
    assert_eq!(committed.released(), SiteLock::idle(Count24::new(10)));
    assert_eq!(idle.in_phase(LockPhase::Commit), idle);
    let frozen = idle.frozen().expect("it is free");
    assert_eq!((taken.frozen(), frozen.frozen()), (None, None));
    assert_eq!(frozen.released(), SiteLock::idle(Count24::new(9)));
    let gift = Gift {
        node: NodeNumber(3),
        generation_low: 5,
        receiver: SiteNumber(0),
        receiver_sequence_low: 9,
    };
    let given = SiteLock::idle(Count24::new(4)).giving(gift);
    assert!(given.is_given_to(SiteNumber(0), committed));
    assert!(!given.is_given_to(SiteNumber(2), committed));
    assert!(!given.is_given_to(SiteNumber(0), committed.released()));
    let other = SiteLock::idle(Count24::new(12)).taken(intention);
    assert!(!given.is_given_to(SiteNumber(0), other), "a later move");
}

#[test]
fn a_moved_node_goes_on_within_its_generation_and_back_in_the_next() {
    let home = SiteNumber(1);
    let drains = Assignment {
        state: AssignmentState::Draining { from: home },
        lent: true,
        ..Assignment::first(Count24::new(5), SiteNumber(0), false)
    };
    let switches = drains.switching();
    assert_eq!(switches.from(), Some(home));
    assert!(!switches.is_serving() && switches.served().is_serving());
    let generations = [switches, switches.served()].map(|it| it.generation.get());
    assert_eq!(generations, [5, 5]);
    for moved in [drains, switches] {
        let back = moved.reverted(Some(home));
        assert_eq!((back.site, back.generation.get()), (home, 6));
        assert!(back.is_serving() && !back.lent);
        assert_eq!(back.cause, MoveCause::Revert);
        assert!(moved.reverted(Some(SiteNumber(2))).lent);
    }
    let serves = drains.served();
    assert_eq!(
        (serves.reverted(None), serves.switching()),
        (serves, serves)
    );
    let pinned = serves.with_pin(true);
    assert_eq!((pinned.pinned, pinned.generation.get()), (true, 6));
    assert_eq!(pinned.with_pin(false).generation.get(), 7);
}

#[test]
fn words_of_a_home_do_not_overlap_and_fit_into_512() {
    let words = (0..SITES_MAX as u8).map(SiteNumber);
    let mut words: Vec<_> = words
        .flat_map(|it| [it.lock_word(), it.updates_word()])
        .collect();
    words.push(CONSTITUTION_WORD);
    assert!(words.iter().all(|word| *word < 512));
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), 2 * SITES_MAX + 1);
}
