-- SPDX-License-Identifier: Apache-2.0 OR MIT
-- The tables of TPC-H for a database of columns, which has no keys for them. Dates come as days
-- since 1992-01-01.
create table region as from read_csv('FOLDER/region', delim = '|', header = false, columns = {
    r_regionkey: 'int', r_name: 'varchar', r_comment: 'varchar'});
create table nation as from read_csv('FOLDER/nation', delim = '|', header = false, columns = {
    n_nationkey: 'int', n_name: 'varchar', n_regionkey: 'int', n_comment: 'varchar'});
create table part as from read_csv('FOLDER/part', delim = '|', header = false, columns = {
    p_partkey: 'int', p_name: 'varchar', p_mfgr: 'varchar', p_brand: 'varchar',
    p_type: 'varchar', p_size: 'int', p_container: 'varchar', p_retailprice: 'decimal(15, 2)',
    p_comment: 'varchar'});
create table supplier as from read_csv('FOLDER/supplier', delim = '|', header = false, columns = {
    s_suppkey: 'int', s_name: 'varchar', s_address: 'varchar', s_nationkey: 'int',
    s_phone: 'varchar', s_acctbal: 'decimal(15, 2)', s_comment: 'varchar'});
create table partsupp as from read_csv('FOLDER/partsupp', delim = '|', header = false, columns = {
    ps_partkey: 'int', ps_suppkey: 'int', ps_availqty: 'int', ps_supplycost: 'decimal(15, 2)',
    ps_comment: 'varchar'});
create table customer as from read_csv('FOLDER/customer', delim = '|', header = false, columns = {
    c_custkey: 'int', c_name: 'varchar', c_address: 'varchar', c_nationkey: 'int',
    c_phone: 'varchar', c_acctbal: 'decimal(15, 2)', c_mktsegment: 'varchar',
    c_comment: 'varchar'});
create table orders as
    select * replace (date '1992-01-01' + o_orderdate as o_orderdate)
    from read_csv('FOLDER/orders', delim = '|', header = false, columns = {
        o_orderkey: 'int', o_custkey: 'int', o_orderstatus: 'varchar',
        o_totalprice: 'decimal(15, 2)', o_orderdate: 'int', o_orderpriority: 'varchar',
        o_clerk: 'varchar', o_shippriority: 'int', o_comment: 'varchar'});
create table lineitem as
    select * replace (
        date '1992-01-01' + l_shipdate as l_shipdate,
        date '1992-01-01' + l_commitdate as l_commitdate,
        date '1992-01-01' + l_receiptdate as l_receiptdate)
    from read_csv('FOLDER/lineitem', delim = '|', header = false, columns = {
        l_orderkey: 'int', l_partkey: 'int', l_suppkey: 'int', l_linenumber: 'int',
        l_quantity: 'decimal(15, 2)', l_extendedprice: 'decimal(15, 2)',
        l_discount: 'decimal(15, 2)', l_tax: 'decimal(15, 2)', l_returnflag: 'varchar',
        l_linestatus: 'varchar', l_shipdate: 'int', l_commitdate: 'int', l_receiptdate: 'int',
        l_shipinstruct: 'varchar', l_shipmode: 'varchar', l_comment: 'varchar'});
checkpoint;
