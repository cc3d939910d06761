-- The orders of Harbour & Pine, a shop for kitchen things, as its support desk sees them.
create table orders (
    order_id       text primary key,
    customer_email text not null,
    item           text not null,
    total_cents    integer not null,
    payments       integer not null default 1,  -- how often the total was paid
    status         text not null
);

create table refunds (
    order_id text primary key references orders,  -- one order is refunded once
    cents    integer not null check (cents > 0)
);

insert into orders (order_id, customer_email, item, total_cents, status) values
    ('1042', 'anna.lindqvist@example.com',   'stoneware teapot',             3450, 'delivered on 9 November'),
    ('1057', 't.nowak@example.net',          'cast iron pan, 28 cm',         5490, 'on its way, arrives on 11 November'),
    ('1058', 'joan.whitfield@example.co.uk', 'wooden salad bowl',            6200, 'delivered on 5 November'),
    ('1063', 'liam.byrne@example.com',       'blue bowls, set of six',       4200, 'delivered on 7 November'),
    ('1066', 'accounts@kern.example.de',     'glass jars, box of twelve',    7800, 'delivered on 4 November'),
    ('1071', 'mei.tanaka@example.com',       'linen aprons, two pieces',     3800, 'not sent yet'),
    ('1074', 'sofia.marques@example.pt',     'oak wall shelf',               8900, 'not sent yet'),
    ('1079', 'yusuf.demir@example.com',      'kitchen knives, set of three', 6900, 'on its way, arrives on 12 November'),
    ('1080', 'claire.dubois@example.fr',     'milk frother',                 3900, 'delivered on 3 November');

update orders set payments = 2 where order_id = '1080';
