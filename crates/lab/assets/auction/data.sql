-- The same rows each time: every value is a hash of its row's number, not a random draw.
-- psql gives the sizes: :members, :items, :bids, :comments, :categories, :regions.

-- Evenly spread over 0 to 1; `what` tells the columns apart.
create function draw(key bigint, what bigint) returns double precision
    language sql immutable parallel safe
    return (hashint8extended(key, what) & 9007199254740991)::double precision / 9007199254740992;

-- A whole number from 1 to `most`; above 1, `skew` makes small ones more frequent.
create function pick(key bigint, what bigint, most integer, skew double precision default 1)
    returns integer language sql immutable parallel safe
    return 1 + floor(most * power(draw(key, what), skew))::integer;

create function word(number integer) returns text
    language sql immutable parallel safe
    return (array['amber', 'old', 'brass', 'small', 'blue', 'carved', 'dutch', 'early', 'fine', 'green',
        'heavy', 'iron', 'large', 'modern', 'narrow', 'oak', 'painted', 'quiet', 'red', 'silver',
        'bench', 'book', 'bowl', 'camera', 'chair', 'clock', 'coat', 'coin', 'cup', 'desk',
        'guitar', 'jug', 'kettle', 'lamp', 'map', 'mirror', 'print', 'radio', 'ring', 'vase'])[number];

insert into regions select number, 'Region ' || number from generate_series(1, :regions) number;
insert into categories select number, 'Category ' || number from generate_series(1, :categories) number;

insert into members
select number, 'member' || number, pick(number, 1, :regions, 1.5), pick(number, 2, 100) - 20,
    now() - draw(number, 3) * interval '1000 days'
from generate_series(1, :members) number;

-- A few categories have most items: what a search costs depends on where it looks.
insert into items (id, name, about, category, seller, start_price, buy_now, quantity, starts_at, ends_at)
select number,
    word(pick(number, 11, 20)) || ' ' || word(20 + pick(number, 12, 20)) || ' ' || number,
    repeat(word(pick(number, 13, 40)) || ' ' || word(pick(number, 14, 40)) || ', ', pick(number, 15, 12)),
    pick(number, 16, :categories, 1.8), pick(number, 17, :members),
    pick(number, 18, 200), 200 + pick(number, 19, 400), pick(number, 20, 5),
    now() - draw(number, 21) * interval '6 days', now() + (draw(number, 22) * 8 - 1) * interval '1 day'
from generate_series(1, :items) number;

insert into bids (item, bidder, amount, placed_at)
select pick(number, 31, :items, 1.5), pick(number, 32, :members), 10 + pick(number, 33, 500),
    now() - draw(number, 34) * interval '6 days'
from generate_series(1, :bids) number;

insert into purchases (item, buyer, bought_at)
select pick(number, 41, :items), pick(number, 42, :members), now() - draw(number, 43) * interval '90 days'
from generate_series(1, :items / 4) number;

insert into comments (about_member, author, rating, body, written_at)
select pick(number, 51, :members, 1.5), pick(number, 52, :members), pick(number, 53, 11) - 6,
    'The ' || word(20 + pick(number, 54, 20)) || ' was ' || word(pick(number, 55, 20)) || '.',
    now() - draw(number, 56) * interval '500 days'
from generate_series(1, :comments) number;

create index on items (seller);
create index on items (category, id);
create index on bids (item);
create index on purchases (buyer);
create index on comments (about_member);

select setval(pg_get_serial_sequence('items', 'id'), :items);
vacuum analyze;
select pg_stat_statements_reset();
