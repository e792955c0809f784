package replica

import (
	"encoding/binary"

	"tallystick/oplog"
)

func (m *MsgBlobWant) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Sub)
	b = append(b, m.Hash[:]...)
	return append(binary.BigEndian.AppendUint32(b, m.First), m.Count)
}

func (m *MsgBlobChunk) appendBody(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, m.Sub)
	b = append(b, m.Hash[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(m.Size))
	return append(binary.BigEndian.AppendUint32(b, m.Index), m.Data...)
}

func (m *MsgBlobState) appendBody(b []byte) []byte {
	hashes := m.Hashes[:min(len(m.Hashes), maxBlobHashes)]
	b = binary.BigEndian.AppendUint16(append(b, boolByte(m.Here)), uint16(len(hashes)))
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

func (d *bodyReader) blobWant() *MsgBlobWant {
	m := &MsgBlobWant{Sub: d.uint64(), Hash: d.hash(), First: d.uint32(), Count: d.byte()}
	if d.err == nil && (m.Count == 0 || m.Count > maxWantChunks || m.First >= oplog.Chunks(oplog.MaxBlob)) {
		d.fail("%d chunks from %d, limit %d", m.Count, m.First, maxWantChunks)
	}
	return m
}

func (d *bodyReader) blobChunk() *MsgBlobChunk {
	m := &MsgBlobChunk{Sub: d.uint64(), Hash: d.hash(), Size: int64(d.uint32()), Index: d.uint32()}
	switch left := int64(oplog.ChunkSize); {
	case d.err != nil:
	case m.Size == 0 || m.Size > oplog.MaxBlob:
		d.fail("content of %d bytes, limit %d", m.Size, oplog.MaxBlob)
	case m.Index >= oplog.Chunks(m.Size):
		d.fail("chunk %d of content of %d bytes", m.Index, m.Size)
	case int64(len(d.b)) != min(m.Size-int64(m.Index)*left, left):
		d.fail("chunk %d has %d bytes, content %d", m.Index, len(d.b), m.Size)
	default:
		m.Data, d.b = d.b, nil
	}
	return m
}

func (d *bodyReader) blobState() *MsgBlobState {
	m := &MsgBlobState{}
	switch v := d.byte(); v {
	case 0, 1:
		m.Here = v == 1
	default:
		d.fail("here is neither yes nor no")
	}
	n := int(d.uint16())
	if n == 0 || n > maxBlobHashes {
		d.fail("%d hashes, limit %d", n, maxBlobHashes)
	}
	if d.err == nil && len(d.b) < n*len(oplog.Hash{}) {
		d.fail("body is too short")
	}
	for range n {
		if d.err != nil {
			break
		}
		m.Hashes = append(m.Hashes, d.hash())
	}
	return m
}
