<?php
// What each page shows. A page is given the database and the number in its path, and gives HTML.

const SHOWN = 25;
const ID_MAX = 1_000_000_000;

/** Questions to the database. */
final class Auction
{
    public function __construct(private readonly PgSql\Connection $database)
    {
    }

    /** All rows of an answer. */
    public function rows(string $query, mixed ...$values): array
    {
        return $this->all(@pg_query_params($this->database, $query, $values));
    }

    /** The same for a question that is asked often: the connection knows it from earlier requests. */
    public function known(string $query, mixed ...$values): array
    {
        $name = md5($query);
        $answer = @pg_execute($this->database, $name, $values);
        if ($answer === false) {
            @pg_prepare($this->database, $name, $query);
            $answer = @pg_execute($this->database, $name, $values);
        }
        return $this->all($answer);
    }

    /** The only row, or the end with 404. */
    public function row(string $query, mixed ...$values): array
    {
        return $this->only($this->rows($query, ...$values));
    }

    /** The same for a question that is asked often. */
    public function known_row(string $query, mixed ...$values): array
    {
        return $this->only($this->known($query, ...$values));
    }

    private function all(PgSql\Result|false $answer): array
    {
        return $answer === false ? fail(500, pg_last_error($this->database)) : pg_fetch_all($answer);
    }

    private function only(array $rows): array
    {
        return $rows[0] ?? fail(404, 'there is no such thing');
    }

    /** Several changes that happen together or not at all. */
    public function together(callable $changes): void
    {
        pg_query($this->database, 'begin');
        $changes();
        pg_query($this->database, 'commit');
    }
}

function text(mixed $value): string
{
    return htmlspecialchars((string) $value, ENT_QUOTES);
}

function page(string $title, string ...$parts): string
{
    $title = text($title);
    $ways = '<a href="/">Home</a> <a href="/browse/categories">Categories</a> <a href="/browse/regions">Regions</a> '
        . '<a href="/sell">Sell</a>';
    return "<!doctype html><title>$title</title><nav>$ways</nav><h1>$title</h1>" . implode('', $parts);
}

/** A table with a column per field. */
function table(array $rows): string
{
    if ($rows === []) {
        return '<p>None.</p>';
    }
    $line = fn (string $cell, array $values): string => '<tr>'
        . implode('', array_map(fn ($value) => "<$cell>" . text($value) . "</$cell>", $values)) . '</tr>';
    $body = implode('', array_map(fn (array $row) => $line('td', $row), $rows));
    return '<table>' . $line('th', array_keys($rows[0])) . $body . '</table>';
}

function links(array $rows, string $to): string
{
    $link = fn (array $row): string => "<li><a href=\"$to/{$row['id']}\">" . text($row['name']) . '</a>';
    return '<ul>' . implode('', array_map($link, $rows)) . '</ul>';
}

function home(Auction $auction): string
{
    $newest = $auction->known('select id, name, start_price from items order by id desc limit 10');
    return page('Auction', '<p>What came in today:</p>', table($newest));
}

function browse_categories(Auction $auction): string
{
    return page('Categories', links($auction->known('select id, name from categories order by id'), '/browse/category'));
}

function browse_regions(Auction $auction): string
{
    return page('Regions', links($auction->known('select id, name from regions order by id'), '/search/region'));
}

function browse_category(Auction $auction, int $category): string
{
    $newest = $auction->known(
        'select id, name, start_price, ends_at from items where category = $1 order by id desc limit $2',
        $category,
        SHOWN
    );
    return page("Category $category", table($newest));
}

/** Items that are still open, the dearest first: every one of them must be looked at to know. */
function search(Auction $auction, string $title, string $where, int $number): string
{
    $found = $auction->rows(
        "select items.id, items.name, items.ends_at, members.nick as seller,
                (select avg(rating)::numeric(3, 1) from comments where about_member = members.id) as trust,
                (select count(distinct bidder) from bids where item = items.id) as bidders,
                coalesce((select max(amount) from bids where item = items.id), items.start_price) as price
         from items join members on members.id = items.seller
         where $where and items.ends_at > now()
         order by price desc, bidders desc, trust desc, items.id
         limit \$2 offset \$3",
        $number,
        SHOWN,
        SHOWN * (number('page', 1, 40) - 1)
    );
    return page($title, table($found));
}

function search_category(Auction $auction, int $category): string
{
    return search($auction, "Search in category $category", 'items.category = $1', $category);
}

function search_region(Auction $auction, int $region): string
{
    return search($auction, "Search in region $region", 'members.region = $1', $region);
}

function search_all(Auction $auction): string
{
    return search($auction, 'Search everywhere', 'items.quantity >= $1', 1);
}

function one_item(Auction $auction, int $item): array
{
    return $auction->known_row(
        'select items.id, items.name, items.about, items.start_price, items.buy_now, items.quantity, items.ends_at,
                members.id as seller, members.nick, members.rating,
                (select max(amount) from bids where item = items.id) as highest
         from items join members on members.id = items.seller where items.id = $1',
        $item
    );
}

function view_item(Auction $auction, int $item): string
{
    $row = one_item($auction, $item);
    return page($row['name'], '<p>', text($row['about']), '</p>', table([$row]));
}

function view_bids(Auction $auction, int $item): string
{
    $bids = $auction->known(
        'select members.nick, bids.amount, bids.placed_at from bids join members on members.id = bids.bidder
         where bids.item = $1 order by bids.amount desc limit $2',
        $item,
        SHOWN
    );
    return page("Bids for $item", table($bids));
}

function form(Auction $auction, int $item, string $what): string
{
    $row = one_item($auction, $item);
    return page("$what: {$row['name']}", table([$row]), "<form method=post><button>$what</button></form>");
}

function bid_form(Auction $auction, int $item): string
{
    return form($auction, $item, 'Bid');
}

function buy_form(Auction $auction, int $item): string
{
    return form($auction, $item, 'Buy now');
}

function bid(Auction $auction, int $item): string
{
    $amount = number('amount', 1, 1_000_000);
    $auction->together(function () use ($auction, $item, $amount): void {
        $auction->row('select id from items where id = $1 for update', $item);
        $auction->rows(
            'insert into bids (item, bidder, amount, placed_at) values ($1, $2, $3, now())',
            $item,
            number('member', 1, ID_MAX),
            $amount
        );
    });
    return page('Thank you', "<p>You bid $amount.</p>");
}

function buy(Auction $auction, int $item): string
{
    $auction->together(function () use ($auction, $item): void {
        $auction->row('select id from items where id = $1 for update', $item);
        $auction->rows(
            'insert into purchases (item, buyer, bought_at) values ($1, $2, now())',
            $item,
            number('member', 1, ID_MAX)
        );
    });
    return page('Thank you', '<p>It is yours.</p>');
}

function view_member(Auction $auction, int $member): string
{
    $row = $auction->known_row('select nick, rating, joined_at from members where id = $1', $member);
    $comments = $auction->known(
        'select rating, body, written_at from comments where about_member = $1 order by written_at desc limit $2',
        $member,
        SHOWN
    );
    return page($row['nick'], table([$row]), table($comments));
}

function comment(Auction $auction, int $member): string
{
    $auction->rows(
        'insert into comments (about_member, author, rating, body, written_at) values ($1, $2, $3, $4, now())',
        $member,
        number('member', 1, ID_MAX),
        number('rating', 1, 5),
        'As it was told.'
    );
    return page('Thank you', '<p>Your comment is there.</p>');
}

/** Everything of a member: what it bids for, sells and has bought, and what is said of it. */
function about_me(Auction $auction, int $member): string
{
    $row = $auction->row('select nick, rating, joined_at from members where id = $1', $member);
    $bids = $auction->rows(
        'select items.id, items.name, max(bids.amount) as mine,
                (select max(amount) from bids as others where others.item = items.id) as highest
         from bids join items on items.id = bids.item
         where bids.bidder = $1 group by items.id order by max(bids.placed_at) desc',
        $member
    );
    $sells = $auction->rows('select id, name, start_price, ends_at from items where seller = $1', $member);
    $bought = $auction->rows(
        'select items.name, purchases.bought_at from purchases join items on items.id = purchases.item
         where purchases.buyer = $1',
        $member
    );
    $comments = $auction->rows('select rating, body from comments where about_member = $1 limit $2', $member, SHOWN);
    return page($row['nick'], table($bids), table($sells), table($bought), table($comments));
}

function sell_form(Auction $auction): string
{
    $categories = $auction->rows('select id, name from categories order by id');
    return page('Sell', links($categories, '/browse/category'), '<form method=post><button>Sell</button></form>');
}

function sell(Auction $auction): string
{
    $auction->rows(
        "insert into items (name, about, category, seller, start_price, buy_now, quantity, starts_at, ends_at)
         values (\$1, 'As it is.', \$2, \$3, 10, 300, 1, now(), now() + interval '7 days')",
        'A thing of ' . number('member', 1, ID_MAX),
        number('category', 1, 1000),
        number('member', 1, ID_MAX)
    );
    return page('Thank you', '<p>It is for sale.</p>');
}
