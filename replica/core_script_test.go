package replica_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tallystick/hlc"
	"tallystick/oplog"
	"tallystick/replica"
)

// TestCoreScripts plays the scripts in testdata/core: inputs of a core, and
// below ---- what it answered. -update writes the answers anew; read the diff.
//
// Devices are single letters and this one is a. Origins are a device and a
// digit, a0; positions are b0:5, or b0:5x on another branch. Effects are
// numbered as they come, and their results name the number.
func TestCoreScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/core/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(text))
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: got\n%s", path, got)
			}
		})
	}
}

// playScript runs each command and puts what came of it below.
func playScript(t *testing.T, text string) string {
	p := &player{t: t, now: replica.Now{Wall: 1_800_000_000_000}}
	var out strings.Builder
	expected := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
			expected = false
		case expected:
		case line == "----":
			expected = true
		case strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
		default:
			out.WriteString(line + "\n----\n" + p.do(line) + "\n")
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

type player struct {
	t       *testing.T
	core    *replica.Core
	now     replica.Now
	reads   []replica.ReadRange
	samples []replica.Sample
	ingest  []replica.Ingest
	heads   []replica.PutHead
	floors  []replica.RaiseFloor
	chunks  []replica.ReadChunk
	puts    []replica.PutChunk
	lists   []replica.ListOwed
	entries []replica.ReadEntry
	pays    []replica.PutEntry
}

type args struct {
	t    *testing.T
	line string
	pos  []string
	opt  map[string]string
}

func (p *player) parse(line string) args {
	a := args{t: p.t, line: line, opt: map[string]string{}}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			a.opt[k] = v
		} else {
			a.pos = append(a.pos, f)
		}
	}
	return a
}

func (a args) num(i int) uint64 {
	n, err := strconv.ParseUint(a.pos[i], 10, 64)
	if err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return n
}

func (a args) optNum(k string, or uint64) uint64 {
	if a.opt[k] == "" {
		return or
	}
	n, err := strconv.ParseUint(a.opt[k], 10, 64)
	if err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return n
}

func scriptKey(s string) (k oplog.DeviceKey) { k[0], k[31] = s[0], s[0]; return k }

// blobOf is the hash of a blob that scripts call by a letter.
func blobOf(s string) (h oplog.Hash) { h[0] = s[0]; return h }

func blobName(h oplog.Hash) string { return string(h[:1]) }

func chunkOf(size int64, index uint32) []byte {
	return make([]byte, min(size-int64(index)*oplog.ChunkSize, oplog.ChunkSize))
}

func scriptOrigin(s string) oplog.OriginID {
	var inc oplog.Incarnation
	inc[0] = s[1]
	o := oplog.OriginOf(scriptKey(s), inc)
	copy(o[:], s[:2]) // so that scripts list origins in the order of their names
	return o
}

func originName(o oplog.OriginID) string { return string(o[:2]) }

// tipOf reads b0:5 or b0:5x.
func tipOf(s string) (oplog.OriginID, oplog.Tip) {
	name, at, _ := strings.Cut(s, ":")
	seq, _ := strconv.ParseUint(strings.TrimRight(at, "x"), 10, 64)
	t := oplog.Tip{Seq: seq, Hash: sha256.Sum256([]byte(s))}
	copy(t.Hash[:], "  ")
	if strings.HasSuffix(at, "x") {
		copy(t.Hash[:], "x ")
	}
	if seq == 0 {
		t = oplog.Tip{}
	}
	return scriptOrigin(name), t
}

func tipName(o oplog.OriginID, t oplog.Tip) string {
	s := fmt.Sprintf("%s:%d", originName(o), t.Seq)
	if t.Hash[0] == 'x' {
		s += "x"
	}
	return s
}

func frontierOf(tips []string) oplog.Frontier {
	f := oplog.Frontier{}
	for _, s := range tips {
		o, t := tipOf(s)
		f[o] = append(f[o], t)
	}
	return f
}

// headOf reads b0:5/17: a tip and a floor, which counts in milliseconds from
// the script's start.
func headOf(s string) oplog.Head {
	at, floor, _ := strings.Cut(s, "/")
	n, _ := strconv.ParseInt(floor, 10, 64)
	o, t := tipOf(at)
	return oplog.Head{Origin: o, Seq: t.Seq, Hash: t.Hash, Floor: floorOf(n)}
}

func floorOf(n int64) hlc.Timestamp { return hlc.New(1_800_000_000_000+n, 0) }
func floorName(t hlc.Timestamp) int64 {
	return t.Millis() - 1_800_000_000_000
}

func headName(h oplog.Head) string {
	return fmt.Sprintf("%s/%d", tipName(h.Origin, h.Tip()), floorName(h.Floor))
}

var scriptErrors = map[string]error{
	"bad": oplog.ErrBadRange, "gap": oplog.ErrGap, "fork": oplog.ErrFork,
	"space": oplog.ErrNoSpace, "closed": oplog.ErrClosed, "unknown": oplog.ErrUnknownOrigin,
	"missing": oplog.ErrNotFound, "hash": oplog.ErrBlobHash, "unwanted": oplog.ErrBlobUnwanted, "notowed": oplog.ErrNotOwed, "other": errors.New("something else"),
}

func (p *player) do(line string) string {
	a := p.parse(line)
	effects := map[string]int{"read": len(p.reads), "sampled": len(p.samples), "ingested": len(p.ingest), "stored": len(p.heads), "raised": len(p.floors),
		"chunk": len(p.chunks), "put": len(p.puts), "listed": len(p.lists), "entry": len(p.entries), "paid": len(p.pays)}
	if n, ok := effects[a.pos[0]]; ok && (a.num(1) < 1 || a.num(1) > uint64(n)) {
		p.t.Errorf("%s: there are %d such effects", line, n)
		return ""
	}
	var out replica.Output
	switch a.pos[0] {
	case "core":
		cfg := replica.CoreConfig{Key: scriptKey("a"), Label: "alice", Self: scriptOrigin("a0"),
			Window: int(a.optNum("window", 0)), MaxRange: int(a.optNum("maxrange", 0))}
		for _, s := range a.pos[1:] {
			h := headOf(s)
			cfg.Origins = append(cfg.Origins, oplog.Origin{ID: h.Origin, Key: scriptKey(s), Tips: []oplog.Tip{h.Tip()}, Head: h})
		}
		p.core = replica.NewCore(cfg)
		return ""
	case "up":
		out = p.core.PeerUp(p.now, replica.SessionID(a.num(1)), scriptKey(a.pos[2]), len(a.pos) > 3)
	case "down":
		out = p.core.PeerDown(p.now, replica.SessionID(a.num(1)))
	case "heard":
		out = p.core.Heard(p.now, replica.SessionID(a.num(1)))
	case "step":
		out = p.core.Step(p.now, replica.SessionID(a.num(1)), p.message(a))
	case "room":
		out = p.core.StoreReady(p.now)
	case "tick":
		d, err := time.ParseDuration(a.pos[1])
		if err != nil {
			p.t.Fatal(err)
		}
		// Second by second, as a driver would.
		for d > 0 {
			part := min(d, time.Second)
			d -= part
			p.now.Mono += part
			p.now.Wall += part.Milliseconds()
			o := p.core.Tick(p.now)
			merge(&out, o)
		}
	case "commit":
		out = p.core.LocalCommit(p.now, headOf(a.pos[1]))
	case "ask":
		n, _ := strconv.ParseInt(a.pos[1], 10, 64)
		out = p.core.AskFloor(p.now, floorOf(n))
	case "read":
		e := p.reads[a.num(1)-1]
		r := oplog.Range{Origin: e.Origin, First: a.optNum("first", e.After+1)}
		if len(a.pos) > 2 {
			r.Head = headOf(a.pos[2])
			r.Count = int(r.Head.Seq - r.First + 1)
			r.Entries = make([]byte, a.optNum("bytes", uint64(100*r.Count)))
		}
		out = p.core.RangeRead(p.now, e, r, scriptErrors[a.opt["err"]])
	case "sampled":
		e := p.samples[a.num(1)-1]
		out = p.core.Sampled(p.now, e, frontierOf(a.pos[2:])[e.Origin], scriptErrors[a.opt["err"]])
	case "ingested":
		e := p.ingest[a.num(1)-1]
		res := oplog.IngestResult{Tip: e.Range.Head.Tip(), Tips: frontierOf(a.pos[2:])[e.Range.Origin], Added: e.Range.Count}
		out = p.core.Ingested(p.now, e, res, scriptErrors[a.opt["err"]])
	case "stored":
		out = p.core.HeadStored(p.now, p.heads[a.num(1)-1], true, scriptErrors[a.opt["err"]])
	case "raised":
		var h oplog.Head
		if len(a.pos) > 2 {
			h = headOf(a.pos[2])
		}
		out = p.core.FloorRaised(p.now, p.floors[a.num(1)-1], h, scriptErrors[a.opt["err"]])
	case "missing": // BLOB SIZE IN ENTRY, e.g. x 700000 b0:2, and have=CHUNKS for the last
		var list []oplog.MissingBlob
		for i := 1; i+2 < len(a.pos); i += 3 {
			o, t := tipOf(a.pos[i+2])
			list = append(list, oplog.MissingBlob{Hash: blobOf(a.pos[i]), Size: int64(a.num(i + 1)), Have: uint32(a.optNum("have", 0)), Ref: oplog.MakeRef(floorOf(0), o, t.Seq, t.Hash)})
		}
		out = p.core.BlobsMissing(p.now, list)
	case "chunk": // EFFECT SIZE
		e := p.chunks[a.num(1)-1]
		if a.opt["err"] != "" {
			out = p.core.ChunkRead(p.now, e, nil, 0, scriptErrors[a.opt["err"]])
			break
		}
		size := int64(a.num(2))
		out = p.core.ChunkRead(p.now, e, chunkOf(size, e.Index), size, nil)
	case "put": // EFFECT, have=CHUNKS
		e := p.puts[a.num(1)-1]
		res := oplog.ChunkResult{Have: uint32(a.optNum("have", uint64(e.Index)+1))}
		res.Whole = res.Have == oplog.Chunks(e.Size)
		out = p.core.ChunkPut(p.now, e, res, scriptErrors[a.opt["err"]])
	case "owes":
		out = p.core.OwedChanged(p.now)
	case "listed": // EFFECT, ENTRY AT..., e.g. x b0:2, next=PLACE
		var list []oplog.OwedEntry
		for i := 2; i+1 < len(a.pos); i += 2 {
			o, t := tipOf(a.pos[i+1])
			list = append(list, oplog.OwedEntry{Hash: blobOf(a.pos[i]), Origin: o, Seq: t.Seq})
		}
		out = p.core.OwedListed(p.now, p.lists[a.num(1)-1], list, a.opt["next"], scriptErrors[a.opt["err"]])
	case "entry": // EFFECT, bytes=LENGTH
		out = p.core.EntryRead(p.now, p.entries[a.num(1)-1], make([]byte, a.optNum("bytes", 300)), scriptErrors[a.opt["err"]])
	case "paid":
		out = p.core.EntryPut(p.now, p.pays[a.num(1)-1], scriptErrors[a.opt["err"]])
	case "status":
		return p.status()
	default:
		p.t.Fatalf("unknown command: %s", line)
	}
	if err := p.core.CheckInvariants(); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	return p.show(out)
}

func merge(out *replica.Output, o replica.Output) {
	out.Send = append(out.Send, o.Send...)
	out.Reads = append(out.Reads, o.Reads...)
	out.Samples = append(out.Samples, o.Samples...)
	out.Ingests = append(out.Ingests, o.Ingests...)
	out.Heads = append(out.Heads, o.Heads...)
	out.Floors = append(out.Floors, o.Floors...)
	out.Chunks = append(out.Chunks, o.Chunks...)
	out.Puts = append(out.Puts, o.Puts...)
	out.Lists = append(out.Lists, o.Lists...)
	out.Entries = append(out.Entries, o.Entries...)
	out.Pays = append(out.Pays, o.Pays...)
	out.Disconnects = append(out.Disconnects, o.Disconnects...)
	out.Events = append(out.Events, o.Events...)
}

// message reads what comes after "step SESSION".
func (p *player) message(a args) replica.Message {
	rest := a.pos[3:]
	switch a.pos[2] {
	case "hello":
		m := &replica.MsgHello{VersionMin: 1, VersionMax: uint8(a.optNum("max", 1)), Key: scriptKey(a.opt["key"]),
			Label: a.opt["label"], WallMillis: p.now.Wall, Origin: scriptOrigin(a.opt["origin"])}
		if m.VersionMax > 1 && a.opt["min"] != "" {
			m.VersionMin = m.VersionMax
		}
		m.Mesh[0] = byte(a.optNum("mesh", 0))
		m.Digest = frontierOf(rest).Digest()
		return m
	case "frontier":
		if len(rest) > 0 && rest[0] == "full" {
			return &replica.MsgFrontier{Full: true, Tips: frontierOf(rest[1:])}
		}
		return &replica.MsgFrontier{Tips: frontierOf(rest)}
	case "blobwant":
		return &replica.MsgBlobWant{Sub: a.optNum("sub", 0), Hash: blobOf(rest[0]), First: uint32(a.optNum("first", 0)), Count: uint8(a.optNum("count", 8))}
	case "blobchunk": // BLOB SIZE INDEX
		size, _ := strconv.ParseInt(rest[1], 10, 64)
		index, _ := strconv.ParseUint(rest[2], 10, 32)
		return &replica.MsgBlobChunk{Sub: a.optNum("sub", 0), Hash: blobOf(rest[0]), Size: size, Index: uint32(index), Data: chunkOf(size, uint32(index))}
	case "blobstate":
		m := &replica.MsgBlobState{Here: a.opt["here"] != ""}
		for _, s := range rest {
			m.Hashes = append(m.Hashes, blobOf(s))
		}
		return m
	case "entrywant":
		m := &replica.MsgEntryWant{Sub: a.optNum("sub", 0)}
		for _, s := range rest {
			m.Hashes = append(m.Hashes, blobOf(s))
		}
		return m
	case "entry": // ENTRY, bytes=LENGTH
		return &replica.MsgEntry{Sub: a.optNum("sub", 0), Hash: blobOf(rest[0]), Entry: make([]byte, a.optNum("bytes", 300))}
	case "entrystate":
		m := &replica.MsgEntryState{Here: a.opt["here"] != ""}
		for _, s := range rest {
			m.Hashes = append(m.Hashes, blobOf(s))
		}
		return m
	case "want":
		m := &replica.MsgWant{Sub: a.optNum("sub", 0), Probe: a.opt["probe"] != ""}
		for _, s := range rest {
			o, t := tipOf(s)
			if m.Origin = o; t.Seq > 0 {
				m.After = append(m.After, t)
			}
		}
		return m
	case "unwant":
		return &replica.MsgUnwant{Sub: a.optNum("sub", 0)}
	case "range":
		h := headOf(rest[0])
		first := a.optNum("first", h.Seq)
		r := oplog.Range{Origin: h.Origin, First: first, Count: int(h.Seq - first + 1), Head: h}
		r.Entries = make([]byte, a.optNum("bytes", uint64(100*r.Count)))
		return &replica.MsgRange{Sub: a.optNum("sub", 0), Range: r}
	case "credit":
		return &replica.MsgCredit{Total: a.optNum("total", 0)}
	case "heads":
		m := &replica.MsgHeads{}
		for _, s := range rest {
			m.Heads = append(m.Heads, headOf(s))
		}
		return m
	case "ask":
		n, _ := strconv.ParseInt(rest[0], 10, 64)
		return &replica.MsgFloorAsk{Above: floorOf(n)}
	case "error":
		m := &replica.MsgError{Code: replica.WireCode(a.optNum("code", 0)), Sub: a.optNum("sub", 0), RetryMillis: uint32(a.optNum("retry", 0)), Text: "as the script says"}
		if len(rest) > 0 {
			m.Origin, m.Tip = tipOf(rest[0])
		}
		return m
	case "ping":
		return &replica.MsgPing{Millis: p.now.Wall}
	case "pong":
		return &replica.MsgPong{Echo: p.now.Wall - int64(a.optNum("rtt", 0)), Millis: p.now.Wall + int64(a.optNum("ahead", 0))}
	}
	p.t.Fatalf("unknown message: %s", a.line)
	return nil
}

func (p *player) show(out replica.Output) string {
	var b strings.Builder
	for _, e := range out.Send {
		fmt.Fprintf(&b, "send %d %s\n", e.To, messageText(e.Msg))
	}
	for _, e := range out.Reads {
		p.reads = append(p.reads, e)
		from := fmt.Sprintf("%s after %d", originName(e.Origin), e.After)
		if e.Toward.Seq > 0 {
			from = fmt.Sprintf("toward %s behind %s", tipName(e.Origin, e.Toward), tipsText(oplog.Frontier{e.Origin: e.Held}))
		}
		fmt.Fprintf(&b, "read %d: for %d sub %d, %s, %d bytes\n", len(p.reads), e.Session, e.Sub, from, e.MaxBytes)
	}
	for _, e := range out.Samples {
		p.samples = append(p.samples, e)
		fmt.Fprintf(&b, "sample %d: %s for %d\n", len(p.samples), tipsText(oplog.Frontier{e.Origin: e.Tips}), e.Session)
	}
	for _, e := range out.Ingests {
		p.ingest = append(p.ingest, e)
		fmt.Fprintf(&b, "ingest %d: %s from %d\n", len(p.ingest), rangeText(e.Range), e.Session)
	}
	for _, e := range out.Heads {
		p.heads = append(p.heads, e)
		fmt.Fprintf(&b, "store head %d: %s\n", len(p.heads), headName(e.Head))
	}
	for _, e := range out.Floors {
		p.floors = append(p.floors, e)
		fmt.Fprintf(&b, "raise floor %d: above %d\n", len(p.floors), floorName(e.Above))
	}
	for _, e := range out.Chunks {
		p.chunks = append(p.chunks, e)
		fmt.Fprintf(&b, "read chunk %d: %s %d for %d\n", len(p.chunks), blobName(e.Hash), e.Index, e.Session)
	}
	for _, e := range out.Puts {
		p.puts = append(p.puts, e)
		fmt.Fprintf(&b, "put chunk %d: %s %d of %d from %d\n", len(p.puts), blobName(e.Hash), e.Index, e.Size, e.Session)
	}
	for _, e := range out.Lists {
		p.lists = append(p.lists, e)
		fmt.Fprintf(&b, "list %d: after %q\n", len(p.lists), e.After)
	}
	for _, e := range out.Entries {
		p.entries = append(p.entries, e)
		fmt.Fprintf(&b, "read entry %d: %s for %d\n", len(p.entries), blobName(e.Hash), e.Session)
	}
	for _, e := range out.Pays {
		p.pays = append(p.pays, e)
		fmt.Fprintf(&b, "put entry %d: %s from %d\n", len(p.pays), blobName(e.Hash), e.Session)
	}
	for _, e := range out.Disconnects {
		fmt.Fprintf(&b, "disconnect %d: %s, retry after %v\n", e.Session, e.Reason, e.RetryAfter)
	}
	for _, e := range out.Events {
		b.WriteString(eventText(e) + "\n")
	}
	return b.String()
}

func rangeText(r oplog.Range) string {
	return fmt.Sprintf("%s %d+%d to %s", originName(r.Origin), r.First, r.Count, headName(r.Head))
}

func tipsText(f oplog.Frontier) string {
	var s []string
	for _, o := range f.Origins() {
		for _, t := range f[o] {
			s = append(s, tipName(o, t))
		}
	}
	return strings.Join(s, " ")
}

func messageText(m replica.Message) string {
	switch m := m.(type) {
	case *replica.MsgHello:
		return fmt.Sprintf("hello %s digest %x", m.Label, m.Digest[:3])
	case *replica.MsgFrontier:
		if m.Full {
			return "frontier full " + tipsText(m.Tips)
		}
		return "frontier " + tipsText(m.Tips)
	case *replica.MsgWant:
		s := fmt.Sprintf("want sub %d %s after", m.Sub, originName(m.Origin))
		if m.Probe {
			s = strings.Replace(s, "want", "want with probe", 1)
		}
		for _, t := range m.After {
			s += " " + tipName(m.Origin, t)
		}
		return s
	case *replica.MsgUnwant:
		return fmt.Sprintf("unwant sub %d", m.Sub)
	case *replica.MsgRange:
		return fmt.Sprintf("range sub %d %s", m.Sub, rangeText(m.Range))
	case *replica.MsgCredit:
		return fmt.Sprintf("credit %d", m.Total)
	case *replica.MsgHeads:
		s := "heads"
		for _, h := range m.Heads {
			s += " " + headName(h)
		}
		return s
	case *replica.MsgFloorAsk:
		return fmt.Sprintf("ask above %d", floorName(m.Above))
	case *replica.MsgError:
		return fmt.Sprintf("error %d sub %d retry %d: %s", m.Code, m.Sub, m.RetryMillis, m.Text)
	case *replica.MsgBlobWant:
		return fmt.Sprintf("blob want sub %d %s %d+%d", m.Sub, blobName(m.Hash), m.First, m.Count)
	case *replica.MsgBlobChunk:
		return fmt.Sprintf("blob chunk sub %d %s %d of %d: %d", m.Sub, blobName(m.Hash), m.Index, m.Size, len(m.Data))
	case *replica.MsgBlobState:
		s := fmt.Sprintf("blob here %v", m.Here)
		for _, h := range m.Hashes {
			s += " " + blobName(h)
		}
		return s
	case *replica.MsgEntryWant:
		return fmt.Sprintf("entry want sub %d%s", m.Sub, hashNames(m.Hashes))
	case *replica.MsgEntry:
		return fmt.Sprintf("entry sub %d %s: %d", m.Sub, blobName(m.Hash), len(m.Entry))
	case *replica.MsgEntryState:
		return fmt.Sprintf("entry here %v%s", m.Here, hashNames(m.Hashes))
	case *replica.MsgPing:
		return "ping"
	case *replica.MsgPong:
		return "pong"
	}
	return fmt.Sprintf("%T", m)
}

func hashNames(list []oplog.Hash) (s string) {
	for _, h := range list {
		s += " " + blobName(h)
	}
	return s
}

func eventText(e replica.Event) string {
	switch e.Kind {
	case replica.EventReady:
		return fmt.Sprintf("ready %d %s", e.Session, e.Hello.Label)
	case replica.EventFork:
		return fmt.Sprintf("fork: mine %s, theirs %s", tipName(e.Origin, e.Mine), tipName(e.Origin, e.Theirs))
	case replica.EventOwnAhead:
		return fmt.Sprintf("own log ahead at peer: mine %s, theirs %s", tipName(e.Origin, e.Mine), tipName(e.Origin, e.Theirs))
	case replica.EventBadRange:
		return fmt.Sprintf("bad range of %s: %v", originName(e.Origin), e.Err)
	case replica.EventBadBlob:
		return fmt.Sprintf("bad blob %d: %v", e.Session, e.Err)
	case replica.EventStore:
		return fmt.Sprintf("store: %v", e.Err)
	}
	return fmt.Sprintf("peer error %d: %v", e.Session, e.Err)
}

func (p *player) status() string {
	var b strings.Builder
	st := p.core.Status(p.now)
	for _, s := range st.Peers {
		fmt.Fprintf(&b, "peer %c session %d ready %v behind %d ahead %d wants %d wanted %d offset %d rtt %v error %q\n",
			s.Key[0], s.Session, s.Ready, s.Behind, s.Ahead, s.Wants, s.Wanted, s.OffsetMillis, s.RTT, s.LastError)
		if s.Busy != "" {
			fmt.Fprintf(&b, "peer %c takes nothing: %s\n", s.Key[0], s.Busy)
		}
	}
	for _, f := range st.Forks {
		fmt.Fprintf(&b, "fork at %c: mine %s, theirs %s\n", f.Key[0], tipName(f.Origin, f.Mine), tipName(f.Origin, f.Theirs))
	}
	if st.Paused {
		b.WriteString("paused\n")
	}
	return b.String()
}
