/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Turns a request into its answer: who may ask, the three verbs, the MAC. The same wire format
 * and the same rules as the user-level responder, crates/remote/src/udp/. */
#ifndef TIDEGATE_ANSWER_H
#define TIDEGATE_ANSWER_H

#define REQUEST_MAGIC 0x51524754u /* "TGRQ" */
#define REPLY_MAGIC 0x50524754u   /* "TGRP" */
#define WIRE_VERSION 2
#define MAC_BYTES_BEFORE 56
#define MAC_WORDS_BEFORE (MAC_BYTES_BEFORE / 8)
#define SECOND 1000000000ull
/* How far a number may lie behind and ahead of our clock, see crates/remote/src/udp/initiators.rs. */
#define AGE_MAX (SECOND / 5)
#define AHEAD_MAX (SECOND / 10)
#define READ_AGE_MAX SECOND
/* How long an initiator is taken for one that has a key, and its part of the rate of all. */
#define PROVEN_FOR (10 * SECOND)
#define OWN_PARTS 50
/* As `bpf_fib_lookup` takes them. */
#define FAMILY_V4 2
#define FAMILY_V6 10
/* Between two searches for an initiator that makes room. */
#define SWEEP_MIN (SECOND / 1000)

enum verb {
    VERB_READ = 1,
    VERB_COMPARE_AND_SWAP = 2,
    VERB_FETCH_AND_ADD = 3,
};

enum status {
    STATUS_DONE,
    STATUS_NO_WORD,
    STATUS_STALE,
    STATUS_EPOCH,
    STATUS_FULL,
    STATUS_ABSENT,
    STATUS_TORN,
    STATUS_TOO_OLD,
    STATUS_TOO_NEW,
};

enum fate {
    FATE_PASS,
    FATE_ANSWER,
    FATE_DROP,
};

/* The MAC of the node's number, a message's header and so many words behind it. Verified by itself,
 * once. */
__noinline __u64 mac_of(const struct message *message, __u64 low, __u64 high, __u64 node, __u32 words)
{
    const __u64 *word = (const __u64 *)message;
    struct siphash state;

    if (!message)
        return 0;
    siphash_start(&state, low, high);
    siphash_absorb(&state, node);
    for (__u32 i = 0; i < MAC_WORDS_BEFORE; i++)
        siphash_absorb(&state, word[i]);
    word += HEADER_BYTES / 8;
    for (__u32 i = 0; i < LINES_MAX * (TIDEGATE_LINE_BYTES / 8); i++) {
        if (i >= words)
            break;
        siphash_absorb(&state, word[i]);
    }
    return siphash_finish(&state, sizeof(node) + MAC_BYTES_BEFORE + words * 8);
}

/* The key that the request was made with; nothing if there is none. */
static __always_inline struct key *key_of(const struct message *message)
{
    __u32 refused = DROP_KEY;

    for (__u32 i = 0; i < KEYS_MAX; i++) {
        __u32 index = i;
        struct key *key = bpf_map_lookup_elem(&keys, &index);

        if (!key || !key->used)
            break;
        if (key->id != message->request.key)
            continue;
        if (mac_of(message, key->low, key->high, key->node, 0) == message->mac)
            return key;
        refused = DROP_MAC;
    }
    count(refused);
    return 0;
}

/* Whether a number lies farther back than `age`. */
static __always_inline int too_old(__u64 number, __u64 age, __u64 now)
{
    return now > age && number < now - age;
}

static __always_inline int too_new(__u64 number, __u64 now)
{
    return number > now + AHEAD_MAX;
}

/* Whether a read proves that its front-end has lately had an answer. */
static __always_inline int is_fresh(__u64 number, __u64 now)
{
    return number && !too_old(number, READ_AGE_MAX, now) && !too_new(number, now);
}

/* Whether one more datagram is within so many of a window. */
static __always_inline int within_rate(struct rate *rate, __u64 most, __u64 now)
{
    __u64 window = now / set_rate_window;
    __u64 last = rate->window;

    if (window != last && __sync_val_compare_and_swap(&rate->window, last, window) == last)
        rate->count = 0;
    return __sync_fetch_and_add(&rate->count, 1) < most;
}

/* Whether a request is within the rate of its initiator's own. That is for numbers of now that are greater
 * than all before: a copy of a request takes nothing of it, and what nobody has proven has none. */
static __always_inline int within_own_rate(struct proven *initiator, __u64 number, __u64 now)
{
    __u64 most = set_rate_max / OWN_PARTS;

    if (!initiator || too_old(initiator->sequence, PROVEN_FOR, now))
        return 0;
    if (!is_fresh(number, now) || number <= initiator->sequence)
        return 0;
    return within_rate(&initiator->rate, most ? most : 1, now) &&
           within_rate(&rates[RATE_PROVEN], set_rate_max, now);
}

/* Notes a request with a key and our clock of now. */
static __always_inline void prove(struct proven *known, __u64 initiator, __u64 number)
{
    struct proven first = {.sequence = number};

    if (!known)
        bpf_map_update_elem(&proven, &initiator, &first, BPF_NOEXIST);
    else if (number > known->sequence)
        known->sequence = number;
}

/* Notes that an initiator reads; gives how many do. */
static __always_inline __u32 note_reader(__u64 initiator, __u64 now, int reads)
{
    __u64 window = now / SECOND + 1;
    __u64 last = readers_window;

    if (window != last && __sync_val_compare_and_swap(&readers_window, last, window) == last) {
        readers_last = window == last + 1 ? readers_now : 0;
        readers_now = 0;
    }
    if (reads) {
        struct proven *reader = bpf_map_lookup_elem(&proven, &initiator);

        if (reader && reader->read_in != window) {
            reader->read_in = window;
            __sync_fetch_and_add(&readers_now, 1);
        }
    }
    __u64 most = readers_now > readers_last ? readers_now : readers_last;
    return most < READERS_MAX ? most : READERS_MAX;
}

struct oldest {
    __u64 initiator;
    __u64 sequence;
    __u64 some;
};

/*
 * In a map and not on the stack: up to Linux 6.4 the verifier looks at a callback once, with the
 * stack as it is before the first call, and drops the branches that only later calls take.
 */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct oldest);
} sweep SEC(".maps");

static long older(void *map, __u64 *initiator, struct last *last, void *unused)
{
    __u32 zero = 0;
    struct oldest *oldest = bpf_map_lookup_elem(&sweep, &zero);

    if (!oldest)
        return 1;
    if (oldest->some && last->sequence >= oldest->sequence)
        return 0;
    oldest->initiator = *initiator;
    oldest->sequence = last->sequence;
    oldest->some = 1;
    return 0;
}

/* Forgets the initiator with the oldest number, if all copies of its atomics are too old. */
static __always_inline int forget_one(__u64 now)
{
    __u32 zero = 0;
    struct oldest *oldest = bpf_map_lookup_elem(&sweep, &zero);

    if (!oldest || now - swept_at < SWEEP_MIN)
        return 0;
    swept_at = now;
    oldest->some = 0;
    bpf_for_each_map_elem(&initiators, older, 0, 0);
    if (!oldest->some || !too_old(oldest->sequence, AGE_MAX, now))
        return 0;
    __u64 initiator = oldest->initiator;
    bpf_map_delete_elem(&initiators, &initiator);
    return 1;
}

/* An entry for an initiator that is not known; nothing if there is no room. */
static __always_inline struct last *make_last(__u64 initiator, __u64 number, __u64 now)
{
    /* Its first atomic has a greater number; and it does not look old meanwhile. */
    struct last fresh = {.sequence = number ? number - 1 : 0};

    /* An int: up to Linux 6.3 the upper half of what the helper returns is not filled in. */
    int made = bpf_map_update_elem(&initiators, &initiator, &fresh, BPF_NOEXIST);

    if (made == -E2BIG) {
        if (!forget_one(now))
            return 0;
        bpf_map_update_elem(&initiators, &initiator, &fresh, BPF_NOEXIST);
    }
    return bpf_map_lookup_elem(&initiators, &initiator);
}

/* What is wrong with a number by our clock. */
static __always_inline __u8 status_of(__u64 number, __u64 now)
{
    if (too_old(number, AGE_MAX, now))
        return STATUS_TOO_OLD;
    return too_new(number, now) ? STATUS_TOO_NEW : STATUS_DONE;
}

/* Carries an atomic out, once. Gives its status; the word's value stands in `value` then. */
static __always_inline __u8 atomic(const struct message *request, __u64 now, __u64 *value)
{
    __u32 zero = 0;
    struct words *all = bpf_map_lookup_elem(&words, &zero);
    __u16 word = request->request.word;
    __u8 verb = request->verb;
    __u64 operand = request->operand, expected = request->expected;
    __u64 number = request->sequence;
    __u64 initiator = request->initiator;
    __u8 status = status_of(number, now);

    if (!all)
        return STATUS_FULL;
    if (request->request.epoch != set_epoch) {
        count(COUNT_REFUSED);
        return STATUS_EPOCH;
    }
    struct last *last = bpf_map_lookup_elem(&initiators, &initiator);

    if (!last && status == STATUS_DONE) {
        last = make_last(initiator, number, now);
        if (!last)
            status = STATUS_FULL;
    }
    if (!last) {
        count(COUNT_REFUSED);
        return status;
    }
    __u64 *target = &all->word[word & (WORDS - 1)];
    __u64 held = 0;
    __u32 what = COUNT_REFUSED;

    bpf_spin_lock(&last->lock);
    if (number == last->sequence && last->word == word && last->verb == verb &&
        last->operand == operand && last->expected == expected) {
        status = last->status;
        held = last->value;
        what = COUNT_REPEATED;
    } else if (number <= last->sequence) {
        status = STATUS_STALE;
    } else if (status == STATUS_DONE) {
        status = STATUS_NO_WORD;
        if (word < WORDS) {
            if (verb == VERB_COMPARE_AND_SWAP)
                held = __sync_val_compare_and_swap(target, expected, operand);
            else
                held = __sync_fetch_and_add(target, operand);
            status = STATUS_DONE;
        }
        last->word = word;
        last->verb = verb;
        last->status = status;
        last->sequence = number;
        last->operand = operand;
        last->expected = expected;
        last->value = held;
        what = COUNT_ATOMICS;
    }
    bpf_spin_unlock(&last->lock);
    count(what);
    *value = held;
    return status;
}

/* The word that every read tells. */
static __always_inline __u64 first_word(void)
{
    __u32 zero = 0;
    struct words *all = bpf_map_lookup_elem(&words, &zero);

    return all ? all->word[0] : 0;
}

static __always_inline int allowed(const struct packet *packet)
{
    if (set_allow_all)
        return 1;
    struct network source = packet->source;

    return bpf_map_lookup_elem(&allow, &source) != 0;
}

/* Whether it is for this host, as far as its loader knows. */
static __always_inline int is_local(__u32 interface, const struct packet *packet)
{
    __u32 *alone = bpf_map_lookup_elem(&addresses, &packet->destination);

    return alone && (!*alone || *alone == interface);
}

/* Whether the kernel would send it on: its address has moved since the loader looked. */
static __always_inline int is_forwarded(void *ctx, __u32 interface, const struct packet *packet)
{
    struct bpf_fib_lookup route = {.ifindex = interface, .l4_protocol = IPPROTO_UDP};

    if (packet->v6) {
        route.family = FAMILY_V6;
        __builtin_memcpy(route.ipv6_src, packet->source.address, 16);
        __builtin_memcpy(route.ipv6_dst, packet->destination.byte, 16);
    } else {
        route.family = FAMILY_V4;
        __builtin_memcpy(&route.ipv4_src, &packet->source.address[12], 4);
        __builtin_memcpy(&route.ipv4_dst, &packet->destination.byte[12], 4);
    }
    int fate = bpf_fib_lookup(ctx, &route, sizeof(route), 0);

    return fate != BPF_FIB_LKUP_RET_NOT_FWDED && fate != BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Judges what its header says by itself. */
static __always_inline int well_formed(const struct message *message, __u32 length)
{
    if (message->version != WIRE_VERSION || message->status != 0) {
        count(DROP_VERSION);
        return 0;
    }
    int atomic = message->verb == VERB_COMPARE_AND_SWAP || message->verb == VERB_FETCH_AND_ADD;

    if (!atomic && message->verb != VERB_READ) {
        count(DROP_VERB);
        return 0;
    }
    if (atomic ? message->lines != 0 : message->lines < 1 || message->lines > LINES_MAX) {
        count(DROP_LINES);
        return 0;
    }
    if (length != HEADER_BYTES + (__u32)message->lines * TIDEGATE_LINE_BYTES) {
        count(DROP_LENGTH);
        return 0;
    }
    return 1;
}

/* The request's header stands at the start of a scratch message; afterwards the answer does. */
static __always_inline enum fate answer(void *ctx, __u32 interface, struct message *message,
                                        const struct packet *packet, __u8 rung)
{
    __u64 now = bpf_ktime_get_ns();

    if (message->magic != REQUEST_MAGIC) {
        count(DROP_MAGIC);
        return FATE_PASS;
    }
    /* Before anything may be dropped. */
    if (!is_local(interface, packet)) {
        count(COUNT_ELSEWHERE);
        return FATE_PASS;
    }
    if (!well_formed(message, packet->length))
        return FATE_PASS;
    int stranger = !allowed(packet);

    /* Before the MAC, and behind what costs less: what is no request uses up nothing, and strangers
     * use up their own rate alone. */
    if (stranger && within_rate(&rates[RATE_STRANGERS], set_rate_max, now)) {
        count(DROP_SOURCE);
        return FATE_PASS;
    }
    __u64 initiator = message->initiator, number = message->sequence;
    struct proven *known = stranger ? 0 : bpf_map_lookup_elem(&proven, &initiator);

    if (stranger || (!within_own_rate(known, number, now) &&
                     !within_rate(&rates[RATE_UNPROVEN], set_rate_max, now))) {
        count(known ? COUNT_IMITATED : COUNT_LIMITED);
        return FATE_DROP;
    }
    struct key *key = key_of(message);

    if (!key)
        return FATE_PASS;
    if (is_forwarded(ctx, interface, packet)) {
        count(COUNT_ELSEWHERE);
        return FATE_PASS;
    }
    int reads = message->verb == VERB_READ;
    __u64 value = 0;
    __u8 status = STATUS_DONE;

    int fresh = is_fresh(number, now);

    if (fresh)
        prove(known, initiator, number);
    if (reads) {
        fill(message, 0, 0, rung);
        value = first_word();
        count(COUNT_READS);
    } else {
        status = atomic(message, now, &value);
    }
    message->magic = REPLY_MAGIC;
    message->status = status;
    message->node_now = bpf_ktime_get_ns();
    message->operand = value;
    message->answer.readers = note_reader(initiator, now, reads && fresh);
    message->answer.epoch = set_epoch;

    __u32 words = (__u32)message->lines * (TIDEGATE_LINE_BYTES / 8);

    message->mac = mac_of(message, key->low, key->high, key->node, words);
    return FATE_ANSWER;
}

/* The sum of a message, for the checksum of UDP. */
static __always_inline __u32 sum_of(struct message *message, __u32 length)
{
    __u32 sum = 0;

    for (__u32 at = 0; at < MESSAGE_BYTES_MAX; at += TIDEGATE_LINE_BYTES) {
        if (at >= length)
            break;
        sum = bpf_csum_diff(0, 0, (void *)message + at, TIDEGATE_LINE_BYTES, sum);
    }
    return sum;
}

#endif
