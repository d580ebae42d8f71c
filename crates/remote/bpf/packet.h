/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Finds a message in a frame, and turns the frame round. */
#ifndef TIDEGATE_PACKET_H
#define TIDEGATE_PACKET_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#define TAGS_MAX 2
#define IP_FRAGMENT 0x3fff
#define TTL 64

struct tag {
    __be16 tci;
    __be16 protocol;
};

/* A message in a frame: offsets are bytes from its start. */
struct packet {
    __u32 network;
    __u32 payload;
    __u32 length; /* of the payload */
    __u8 v6;
    struct network source;
    struct address destination;
};

/* The address of IPv6 that stands for one of IPv4. */
static __always_inline void map_v4(__u8 *address, const __be32 *v4)
{
    __builtin_memset(address, 0, 10);
    address[10] = 0xff;
    address[11] = 0xff;
    __builtin_memcpy(address + 12, v4, sizeof(*v4));
}

/* Whether the frame holds a whole UDP datagram to our port, and where. */
static __always_inline int find(void *data, void *end, struct packet *packet)
{
    struct ethhdr *eth = data;
    __u32 at = sizeof(*eth);

    if ((void *)(eth + 1) > end)
        return 0;
    __be16 protocol = eth->h_proto;

    for (int i = 0; i < TAGS_MAX; i++) {
        struct tag *tag = data + at;

        if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
            break;
        if ((void *)(tag + 1) > end)
            return 0;
        protocol = tag->protocol;
        at += sizeof(*tag);
    }
    packet->network = at;
    packet->source.prefix = 128;
    __u32 rest;

    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = data + at;

        if ((void *)(ip + 1) > end)
            return 0;
        /* Options and fragments are for the stack. */
        if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
            return 0;
        if (ip->frag_off & bpf_htons(IP_FRAGMENT))
            return 0;
        if ((ip->daddr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || !~ip->daddr)
            return 0;
        packet->v6 = 0;
        map_v4(packet->source.address, &ip->saddr);
        map_v4(packet->destination.byte, &ip->daddr);
        rest = bpf_ntohs(ip->tot_len) - sizeof(*ip);
        at += sizeof(*ip);
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = data + at;

        if ((void *)(ip + 1) > end)
            return 0;
        if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
            return 0;
        if (ip->daddr.s6_addr[0] == 0xff)
            return 0;
        packet->v6 = 1;
        __builtin_memcpy(packet->source.address, &ip->saddr, 16);
        __builtin_memcpy(packet->destination.byte, &ip->daddr, 16);
        rest = bpf_ntohs(ip->payload_len);
        at += sizeof(*ip);
    } else {
        return 0;
    }
    struct udphdr *udp = data + at;

    if ((void *)(udp + 1) > end)
        return 0;
    if (udp->dest != bpf_htons(set_port) || udp->source == 0)
        return 0;
    if (bpf_ntohs(udp->len) != rest || rest < sizeof(*udp))
        return 0;
    packet->payload = at + sizeof(*udp);
    packet->length = rest - sizeof(*udp);
    return 1;
}

static __always_inline __u16 fold(__u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

/* Sends the frame back to where it came from; its lengths stay. `sum` is that of the payload. */
static __always_inline int turn_round(void *data, void *end, const struct packet *packet, __u32 sum)
{
    struct ethhdr *eth = data;
    __u8 mac[ETH_ALEN];
    struct udphdr *udp;
    struct ipv6hdr *v6 = 0;
    __u32 at = packet->network;

    if ((void *)(eth + 1) > end || at > sizeof(*eth) + TAGS_MAX * sizeof(struct tag))
        return 0;
    __builtin_memcpy(mac, eth->h_source, ETH_ALEN);
    __builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
    __builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
    if (packet->v6) {
        struct ipv6hdr *ip = data + at;

        if ((void *)(ip + 1) > end)
            return 0;
        struct in6_addr address = ip->saddr;

        ip->saddr = ip->daddr;
        ip->daddr = address;
        ip->hop_limit = TTL;
        v6 = ip;
        udp = (void *)(ip + 1);
    } else {
        struct iphdr *ip = data + at;

        if ((void *)(ip + 1) > end)
            return 0;
        __be32 address = ip->saddr;

        ip->saddr = ip->daddr;
        ip->daddr = address;
        ip->ttl = TTL;
        ip->check = 0;
        ip->check = fold(bpf_csum_diff(0, 0, (__be32 *)ip, sizeof(*ip), 0));
        udp = (void *)(ip + 1);
    }
    if ((void *)(udp + 1) > end)
        return 0;
    __be16 port = udp->source;

    udp->source = udp->dest;
    udp->dest = port;
    udp->check = 0;
    /* IPv4 may go without; IPv6 may not. */
    if (v6) {
        __u64 all = (__u64)sum + udp->len + bpf_htons(IPPROTO_UDP);

        all += bpf_csum_diff(0, 0, (__be32 *)&v6->saddr, 2 * sizeof(v6->saddr), 0);
        all += bpf_csum_diff(0, 0, (__be32 *)udp, sizeof(*udp), 0);
        udp->check = fold(all);
        if (!udp->check)
            udp->check = 0xffff;
    }
    return 1;
}

#endif
