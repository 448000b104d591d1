# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What tshark makes of a recorded connection of iSER over iWARP: FPDUs, segments and messages by
its own dissectors; the iSCSI PDUs in them too, which it does not look for there."""
import collections
import socket
import struct
import subprocess
import xml.etree.ElementTree as xml

WRITE, READ_REQUEST, READ_RESPONSE = 0, 1, 2
SENDS = 3, 4, 5, 6
ISER_LEN, BHS_LEN = 28, 48
LINKTYPE_RAW = 101

# A message of RDMAP. `ends`: ports of source and destination; `payload` of a Send alone.
Message = collections.namedtuple("Message", "ends opcode payload")


class Wrong(Exception):
    """What is on the wire is not what it should be."""


# What iWARP begins with is looked for on any port; what else it may carry is not.
OPTIONS = ("-o", "tcp.try_heuristic_first:TRUE", "-o",
           "iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE", "--disable-protocol", "rpcordma",
           "--disable-protocol", "smb_direct")


def tshark(path, *words):
    return subprocess.run(
        ["tshark", "-n", "-r", path, *OPTIONS, *words], check=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def must_be_well_formed(path, port):
    """No dissector gives up, or finds an error. What is no iWARP on this port is iSCSI."""
    found = tshark(path, *of(port), "-Y", "_ws.malformed || _ws.expert.severity >= error")
    if found:
        raise Wrong(f"malformed:\n{found}")


def of(port):
    return "-d", f"tcp.port=={port},iscsi"


def fields(protocol):
    """Those of one layer, the first of each name."""
    shown = {}
    for field in protocol.iter("field"):
        shown.setdefault(field.get("name"), field)
    return shown


def starts(path):
    """Ports, kind, revision and private data of each MPA request and reply, in order."""
    rows = tshark(path, "-Y", "iwarp_mpa.req || iwarp_mpa.rep", "-T", "fields", "-e",
                  "tcp.srcport", "-e", "tcp.dstport", "-e", "iwarp_mpa.key.req", "-e",
                  "iwarp_mpa.rev", "-e", "iwarp_mpa.privatedata")
    for row in rows.splitlines():
        source, target, request, revision, data = row.split("\t")
        kind = "request" if request else "reply"
        yield (int(source), int(target)), kind, int(revision), bytes.fromhex(data.replace(":", ""))


def messages(path):
    """Each message, whose segments may be many, when its last one is there. Every CRC is good."""
    begun = collections.defaultdict(bytes)
    for packet in xml.fromstring(tshark(path, "-Y", "iwarp_mpa", "-T", "pdml")):
        ends = segment = None
        for protocol in packet:
            name, shown = protocol.get("name"), fields(protocol)
            if name == "tcp":
                ends = tuple(int(shown[f"tcp.{end}port"].get("show")) for end in ("src", "dst"))
            elif name == "iwarp_mpa" and "iwarp_mpa.crc_check" in shown:
                if "Good CRC32" not in shown["iwarp_mpa.crc_check"].get("showname"):
                    raise Wrong(f"CRC of an FPDU: {shown['iwarp_mpa.crc_check'].attrib}")
            elif name == "iwarp_ddp_rdmap":
                segment = shown
                opcode = int(shown["iwarp_rdma.opcode"].get("show"), 16)
                is_last = shown["iwarp_ddp.last_flag"].get("show") == "1"
                if opcode not in SENDS and is_last:
                    yield Message(ends, opcode, b"")
            elif "data.data" in shown and segment and opcode in SENDS:
                begun[ends] += bytes.fromhex(shown["data.data"].get("value"))
                if is_last:
                    yield Message(ends, opcode, begun.pop(ends))


def write_pdus(path, sent):
    """A recording of the PDUs of these Sends, as over TCP. The header of iSER is well-formed."""
    numbers = collections.Counter()
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 1 << 18, LINKTYPE_RAW))
        for message in sent:
            header, pdu = message.payload[:ISER_LEN], message.payload[ISER_LEN:]
            must_be_iser(header, pdu, message.ends)
            source, target = message.ends
            tcp = struct.pack(">HHIIBBHHH", source, target, numbers[source, target] + 1,
                              numbers[target, source] + 1, 5 << 4, 0x18, 0xffff, 0, 0)
            numbers[source, target] += len(pdu)
            address = socket.inet_aton("127.0.0.1")
            length = 20 + len(tcp) + len(pdu)
            ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 6, 0, address, address)
            out.write(struct.pack("<IIII", 0, 0, length, length) + ip + tcp + pdu)


def must_be_iser(header, pdu, ends):
    """Opcode 1; memory is named by those flags alone that say so; only requests name any."""
    flags, *rest = struct.unpack(">BxxxIQIQ", header)
    write, read = bool(flags & 8), bool(flags & 4)
    is_right = flags >> 4 == 1 and not flags & 3 and len(pdu) >= BHS_LEN
    is_right &= (write or not any(rest[:2])) and (read or not any(rest[2:]))
    if not is_right:
        raise Wrong(f"header of iSER, ports {ends}: {header.hex()}")


def opcodes(path, port):
    """The opcodes of all iSCSI PDUs to and from this port: (ports, opcode) in order."""
    rows = tshark(path, *of(port), "-Y", "iscsi", "-T", "fields", "-e", "tcp.srcport", "-e",
                  "tcp.dstport", "-e", "iscsi.opcode")
    for row in rows.splitlines():
        source, target, found = row.split("\t")
        for opcode in found.split(","):
            yield (int(source), int(target)), int(opcode, 0)
