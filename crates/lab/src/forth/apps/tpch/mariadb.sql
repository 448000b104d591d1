-- SPDX-License-Identifier: Apache-2.0 OR MIT
-- The tables of TPC-H (specification 2.1.0, section 1.4) with their keys. Dates come as days since
-- 1992-01-01.
create database tpch;
use tpch;

create table region (
    r_regionkey int primary key, r_name char(25), r_comment varchar(152)
);
create table nation (
    n_nationkey int primary key, n_name char(25), n_regionkey int, n_comment varchar(152),
    key (n_regionkey)
);
create table part (
    p_partkey int primary key, p_name varchar(55), p_mfgr char(25), p_brand char(10),
    p_type varchar(25), p_size int, p_container char(10), p_retailprice decimal(15, 2),
    p_comment varchar(23)
);
create table supplier (
    s_suppkey int primary key, s_name char(25), s_address varchar(40), s_nationkey int,
    s_phone char(15), s_acctbal decimal(15, 2), s_comment varchar(101),
    key (s_nationkey)
);
create table partsupp (
    ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost decimal(15, 2),
    ps_comment varchar(199),
    primary key (ps_partkey, ps_suppkey), key (ps_suppkey)
);
create table customer (
    c_custkey int primary key, c_name varchar(25), c_address varchar(40), c_nationkey int,
    c_phone char(15), c_acctbal decimal(15, 2), c_mktsegment char(10), c_comment varchar(117),
    key (c_nationkey)
);
create table orders (
    o_orderkey int primary key, o_custkey int, o_orderstatus char(1),
    o_totalprice decimal(15, 2), o_orderdate date, o_orderpriority char(15), o_clerk char(15),
    o_shippriority int, o_comment varchar(79),
    key (o_custkey)
);
create table lineitem (
    l_orderkey int, l_partkey int, l_suppkey int, l_linenumber int, l_quantity decimal(15, 2),
    l_extendedprice decimal(15, 2), l_discount decimal(15, 2), l_tax decimal(15, 2),
    l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date,
    l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44),
    primary key (l_orderkey, l_linenumber), key (l_partkey, l_suppkey), key (l_suppkey)
);

load data infile 'FOLDER/region' into table region fields terminated by '|';
load data infile 'FOLDER/nation' into table nation fields terminated by '|';
load data infile 'FOLDER/part' into table part fields terminated by '|';
load data infile 'FOLDER/supplier' into table supplier fields terminated by '|';
load data infile 'FOLDER/partsupp' into table partsupp fields terminated by '|';
load data infile 'FOLDER/customer' into table customer fields terminated by '|';
load data infile 'FOLDER/orders' into table orders fields terminated by '|'
    (o_orderkey, o_custkey, o_orderstatus, o_totalprice, @ordered, o_orderpriority, o_clerk,
     o_shippriority, o_comment)
    set o_orderdate = date '1992-01-01' + interval @ordered day;
load data infile 'FOLDER/lineitem' into table lineitem fields terminated by '|'
    (l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount,
     l_tax, l_returnflag, l_linestatus, @shipped, @committed, @received, l_shipinstruct,
     l_shipmode, l_comment)
    set l_shipdate = date '1992-01-01' + interval @shipped day,
        l_commitdate = date '1992-01-01' + interval @committed day,
        l_receiptdate = date '1992-01-01' + interval @received day;
flush tables;
