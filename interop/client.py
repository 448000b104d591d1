# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A small iSCSI initiator for tests that need every byte in their own hands.

It does what it is told, right or wrong; only what is not told is done by the book. Names and
offsets are those of RFC 7143 section 11. Everything is blocking with a timeout.
"""
import socket
import struct

NOP_OUT, SCSI_COMMAND, TASK_MANAGEMENT, LOGIN, TEXT, DATA_OUT, LOGOUT = 0, 1, 2, 3, 4, 5, 6
SNACK = 0x10
NOP_IN, SCSI_RESPONSE, TASK_RESPONSE, LOGIN_RESPONSE, TEXT_RESPONSE = 0x20, 0x21, 0x22, 0x23, 0x24
DATA_IN, LOGOUT_RESPONSE, R2T, ASYNC_MESSAGE, REJECT = 0x25, 0x26, 0x31, 0x32, 0x3F
IMMEDIATE, FINAL, READ, WRITE, SIMPLE = 0x40, 0x80, 0x40, 0x20, 1
NO_TAG = 0xFFFFFFFF
INITIATOR = "iqn.2026-01.test.lunwire:client"
BLOCK = 512


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def padded(data):
    return bytes(data) + bytes(-len(data) % 4)


def header(opcode, flags=FINAL, **fields):
    """A basic header segment. Fields: lun, itt, ttt (20), length, and w20 to w44, the 32-bit
    words at those offsets."""
    bhs = bytearray(48)
    bhs[0], bhs[1] = opcode, flags
    bhs[5:8] = fields.pop("length", 0).to_bytes(3, "big")
    struct.pack_into(">H", bhs, 8, fields.pop("lun", 0))
    struct.pack_into(">I", bhs, 16, fields.pop("itt", NO_TAG))
    for name, value in fields.items():
        struct.pack_into(">I", bhs, int(name[1:]), value & 0xFFFFFFFF)
    return bhs


def keys(**pairs):
    return b"".join(f"{key}={value}\0".encode() for key, value in pairs.items())


def login_request(text, isid=1, csg=1, nsg=3, transit=True, cid=0, cmd_sn=1, tsih=0, itt=0):
    flags = (0x80 if transit else 0) | csg << 2 | (nsg if transit else 0)
    bhs = header(LOGIN | IMMEDIATE, flags, itt=itt, length=len(text), w20=cid << 16, w24=cmd_sn)
    # ISID of the random format: 80, three bytes, qualifier of two.
    bhs[8:14] = b"\x80\x12\x34" + isid.to_bytes(3, "big")
    struct.pack_into(">H", bhs, 14, tsih)
    return bytes(bhs) + padded(text)


class Closed(Exception):
    """The target closed or reset the connection."""


class LoginRefused(Exception):
    """Status class and detail."""


class CheckCondition(Exception):
    """A SCSI status other than GOOD: status and sense data."""

    def __init__(self, status, sense):
        super().__init__(f"status {status:#x}, sense {sense.hex()}")
        self.status, self.sense = status, sense

    @property
    def key_and_code(self):
        """(sense key, ASC, ASCQ) of fixed or descriptor sense data."""
        sense = self.sense
        if len(sense) < 4:
            return None
        if sense[0] & 0x7E == 0x72:
            return sense[1] & 15, sense[2], sense[3]
        return sense[2] & 15, sense[12], sense[13]


class Pdu:
    """A received PDU."""

    def __init__(self, bhs, data):
        self.bhs, self.data = bhs, data

    opcode = property(lambda self: self.bhs[0] & 0x3F)
    flags = property(lambda self: self.bhs[1])
    response = property(lambda self: self.bhs[2])
    status = property(lambda self: self.bhs[3])
    itt = property(lambda self: self.word(16))
    ttt = property(lambda self: self.word(20))
    stat_sn = property(lambda self: self.word(24))

    def word(self, offset):
        return struct.unpack_from(">I", self.bhs, offset)[0]


class Connection:
    """Bytes and PDUs over one TCP connection, before and after login."""

    def __init__(self, host, port, timeout=10):
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.header_digest = self.data_digest = False

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionError) as error:
            raise Closed(str(error)) from None

    def receive(self, length):
        parts = bytearray()
        while len(parts) < length:
            try:
                part = self.socket.recv(length - len(parts))
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed(f"end of stream after {len(parts)} of {length} bytes")
            parts += part
        return bytes(parts)

    def send_pdu(self, bhs, data=b"", ahs=b""):
        """The header with what follows; digests as negotiated. DataSegmentLength and
        TotalAHSLength are taken from the arguments unless the header has them."""
        bhs = bytearray(bhs)
        if data and bhs[5:8] == b"\0\0\0":
            bhs[5:8] = len(data).to_bytes(3, "big")
        if ahs and bhs[4] == 0:
            bhs[4] = len(ahs) // 4
        head = bytes(bhs) + ahs
        if self.header_digest:
            head += crc32c(head)
        if data:
            data = padded(data)
            if self.data_digest:
                data += crc32c(data)
        self.send(head + data)

    def receive_pdu(self):
        bhs = self.receive(48)
        rest = bhs[4] * 4
        if rest:
            bhs += self.receive(rest)
        if self.header_digest and self.receive(4) != crc32c(bhs):
            raise AssertionError("wrong header digest from the target")
        length = int.from_bytes(bhs[5:8], "big")
        data = self.receive(length + -length % 4) if length else b""
        if length and self.data_digest and self.receive(4) != crc32c(data):
            raise AssertionError("wrong data digest from the target")
        return Pdu(bhs, data[:length])

    def expect_close(self, seconds=10):
        """Reads until the target closes; anything it still says is thrown away. TimeoutError
        when it does not."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass

    def close(self):
        self.socket.close()


class Session(Connection):
    """A normal session of one connection, logged in."""

    def __init__(self, host, port, iqn, isid=1, initiator=INITIATOR, digests=False, timeout=10,
                 **more_keys):
        super().__init__(host, port, timeout)
        self.cmd_sn, self.exp_stat_sn, self.next_itt, self.max_cmd_sn = 1, 0, 1, 1
        self.parameters, self.tasks, self.tsih = {}, {}, 0
        digest = "CRC32C" if digests else "None"
        offer = {"InitiatorName": initiator, "TargetName": iqn, "SessionType": "Normal",
                 "HeaderDigest": digest, "DataDigest": digest, "ErrorRecoveryLevel": "0",
                 "InitialR2T": "No", "ImmediateData": "Yes", "MaxBurstLength": "262144",
                 "FirstBurstLength": "65536", "MaxRecvDataSegmentLength": "262144",
                 "MaxConnections": "1", "DefaultTime2Wait": "0", "DefaultTime2Retain": "0",
                 "MaxOutstandingR2T": "1", **more_keys}
        try:
            self.log_in(keys(**offer), isid)
        except Exception:
            self.close()
            raise
        self.header_digest = self.parameters.get("HeaderDigest") == "CRC32C"
        self.data_digest = self.parameters.get("DataDigest") == "CRC32C"

    def log_in(self, text, isid):
        for _ in range(8):
            self.send(login_request(text, isid, cmd_sn=self.cmd_sn))
            reply = self.receive_pdu()
            if reply.opcode != LOGIN_RESPONSE:
                raise AssertionError(f"opcode {reply.opcode:#x} as answer to a login")
            status = reply.bhs[36] << 8 | reply.bhs[37]
            if status:
                raise LoginRefused(f"{status:04x}")
            for pair in reply.data.split(b"\0"):
                key, _, value = pair.decode().partition("=")
                self.parameters[key] = value
            self.exp_stat_sn = reply.stat_sn + 1
            self.max_cmd_sn = reply.word(32)
            if reply.flags & 0x80 and reply.flags & 3 == 3:
                self.tsih = int.from_bytes(reply.bhs[14:16], "big")
                return
            text = b""
        raise AssertionError("the login does not end")

    def number(self, name, default):
        return int(self.parameters.get(name, default))

    # Commands

    def submit(self, cdb, lun=1, data=b"", length=0, flags=None):
        """Sends a command, and with it what may go without being asked for. Returns its ITT."""
        itt, self.next_itt = self.next_itt, self.next_itt + 1 & 0x7FFFFFFF
        expected = len(data) or length
        if flags is None:
            flags = FINAL | SIMPLE | (WRITE if data else READ if length else 0)
        bhs = header(SCSI_COMMAND, flags, lun=lun, itt=itt, w20=expected, w24=self.cmd_sn,
                     w28=self.exp_stat_sn)
        bhs[32:48] = bytes(cdb).ljust(16, b"\0")
        self.cmd_sn = self.cmd_sn + 1 & 0xFFFFFFFF
        segment = self.number("MaxRecvDataSegmentLength", 8192)
        burst = min(segment, self.number("FirstBurstLength", 65536))
        immediate = data[:burst] if self.parameters.get("ImmediateData", "Yes") == "Yes" else b""
        self.tasks[itt] = {"data": data, "read": bytearray(length), "lun": lun}
        self.send_pdu(bhs, immediate)
        return itt

    def answer_r2t(self, pdu):
        task = self.tasks[pdu.itt]
        start, left = pdu.word(40), pdu.word(44)
        segment, data_sn = self.number("MaxRecvDataSegmentLength", 8192), 0
        while left:
            part = min(left, segment)
            left -= part
            bhs = header(DATA_OUT, 0 if left else FINAL, lun=task["lun"], itt=pdu.itt,
                         w20=pdu.ttt, w28=self.exp_stat_sn, w36=data_sn, w40=start)
            self.send_pdu(bhs, task["data"][start:start + part])
            start, data_sn = start + part, data_sn + 1

    def step(self):
        """Takes one PDU. Returns (ITT, status, sense or data) when it ends a command, the PDU
        itself when it is of a kind that the caller has to judge, else None."""
        pdu = self.receive_pdu()
        if pdu.opcode == R2T:
            if not self.tasks[pdu.itt]["data"]:
                return pdu      # the caller sends the data itself
            self.answer_r2t(pdu)
            return None
        if pdu.opcode == NOP_IN and pdu.ttt != NO_TAG:
            self.send_pdu(header(NOP_OUT | IMMEDIATE, lun=1, w20=pdu.ttt, w24=self.cmd_sn,
                                 w28=self.exp_stat_sn))
            return None
        self.max_cmd_sn = pdu.word(32)
        if pdu.opcode == DATA_IN:
            task, offset = self.tasks[pdu.itt], pdu.word(40)
            task["read"][offset:offset + len(pdu.data)] = pdu.data
            if not pdu.flags & 1:
                return None
            self.exp_stat_sn = pdu.stat_sn + 1 & 0xFFFFFFFF
            task = self.tasks.pop(pdu.itt)
            return pdu.itt, pdu.status, bytes(task["read"])
        if pdu.opcode == SCSI_RESPONSE:
            self.exp_stat_sn = pdu.stat_sn + 1 & 0xFFFFFFFF
            task = self.tasks.pop(pdu.itt, {"read": b""})
            sense = pdu.data[2:2 + int.from_bytes(pdu.data[:2], "big")]
            if pdu.response != 0:
                raise AssertionError(f"iSCSI response {pdu.response:#x}")
            return pdu.itt, pdu.status, sense if pdu.status else bytes(task["read"])
        if pdu.opcode in (REJECT, ASYNC_MESSAGE, TEXT_RESPONSE, LOGOUT_RESPONSE, NOP_IN,
                          TASK_RESPONSE):
            self.exp_stat_sn = pdu.stat_sn + 1 & 0xFFFFFFFF
        return pdu

    def finish(self):
        """The next command that ends: (ITT, status, data)."""
        while True:
            result = self.step()
            if isinstance(result, tuple):
                return result

    def command(self, cdb, lun=1, data=b"", length=0):
        """One command from beginning to end; CheckCondition when it does not go well."""
        itt = self.submit(cdb, lun, data, length)
        while True:
            ended, status, answer = self.finish()
            if ended == itt:
                if status:
                    raise CheckCondition(status, answer)
                return answer

    def ready(self, lun=1):
        """Takes the unit attentions that wait for a new session."""
        for _ in range(8):
            try:
                return self.command(bytes(6), lun)
            except CheckCondition as condition:
                if condition.key_and_code[0] != 6:
                    raise
        raise AssertionError("unit attentions without end")

    def read(self, lba, blocks, lun=1):
        return self.command(rw10(0x28, lba, blocks), lun, length=blocks * BLOCK)

    def write(self, lba, data, lun=1):
        return self.command(rw10(0x2A, lba, len(data) // BLOCK), lun, data=data)

    def manage(self, function, lun, itt=NO_TAG):
        """A task management function from beginning to end: its response. What ends meanwhile is
        of no matter."""
        self.send_pdu(header(TASK_MANAGEMENT | IMMEDIATE, FINAL | function, lun=lun, itt=0x70000003,
                             w20=itt, w24=self.cmd_sn, w28=self.exp_stat_sn,
                             w32=self.cmd_sn - 1))
        while True:
            result = self.step()
            if isinstance(result, Pdu) and result.opcode == TASK_RESPONSE:
                self.tasks.pop(itt, None)
                return result.response

    def nop(self):
        """NOP-Out with a ping text; returns the answer."""
        self.send_pdu(header(NOP_OUT | IMMEDIATE, lun=0, itt=0x70000001, w20=NO_TAG,
                             w24=self.cmd_sn, w28=self.exp_stat_sn), b"ping")
        while True:
            result = self.step()
            if isinstance(result, Pdu) and result.opcode == NOP_IN:
                return result

    def log_out(self):
        self.send_pdu(header(LOGOUT | IMMEDIATE, FINAL, itt=0x70000002, w24=self.cmd_sn,
                             w28=self.exp_stat_sn))
        while True:
            result = self.step()
            if isinstance(result, Pdu) and result.opcode == LOGOUT_RESPONSE:
                self.close()
                return


def rw10(opcode, lba, blocks):
    return struct.pack(">BBIBHB", opcode, 0, lba, 0, blocks, 0)
