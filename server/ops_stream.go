package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tallystick/oplog"
)

// Calls that take long say how far they are, one JSON object a line; the last
// line has the result or the error.

// Progress is how far a long call has got.
type Progress struct {
	Done  uint64 `json:"done"`
	Total uint64 `json:"total"`
}

type progressLine struct {
	*Progress
	Result json.RawMessage `json:"result,omitempty"`
}

const progressEvery = 100 * time.Millisecond

func (s *Service) serveProgress(fn func(ctx context.Context, o Owner, progress func(done, total uint64)) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, bad := s.owner()
		if bad != nil {
			writeError(w, bad.HTTPStatus(), bad)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		rc := http.NewResponseController(w)
		// The call runs in its own goroutine, since progress must not block; this
		// one writes the latest there is.
		latest := make(chan Progress, 1)
		type outcome struct {
			v   any
			err error
		}
		ended := make(chan outcome, 1)
		go func() {
			v, err := fn(r.Context(), o, func(done, total uint64) {
				select {
				case <-latest:
				default:
				}
				select {
				case latest <- Progress{done, total}:
				default:
				}
			})
			ended <- outcome{v, err}
		}()
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				select {
				case p := <-latest:
					w.Write(append(encode(progressLine{Progress: &p}), '\n'))
					rc.Flush()
				default:
				}
			case out := <-ended:
				if out.err != nil {
					w.Write(append(s.asError(r.Context(), out.err).JSON(), '\n'))
					return
				}
				w.Write(append(encode(progressLine{Result: encode(out.v)}), '\n'))
				return
			}
		}
	}
}

// PackMeta is what a pack says of itself, as JSON. Nobody has signed it.
type PackMeta struct {
	Label   string `json:"label"`
	Mesh    string `json:"mesh"`
	Created string `json:"created"`
	Version string `json:"version"`
}

const (
	errorTrailer = "Tally-Error"
	countTrailer = "Tally-Counts"
)

// serveExport streams a pack of everything. With turn=1 the continuity token
// is turned before and after, so that a copy of the store made meanwhile can
// not pass for the store itself (L7a).
func (s *Service) serveExport(w http.ResponseWriter, r *http.Request) {
	o, bad := s.owner()
	if bad != nil {
		writeError(w, bad.HTTPStatus(), bad)
		return
	}
	turn := func() error {
		if r.URL.Query().Get("turn") == "" {
			return nil
		}
		return o.Log().TurnToken(r.Context())
	}
	if err := turn(); err != nil {
		e := s.asError(r.Context(), err)
		writeError(w, e.HTTPStatus(), e)
		return
	}
	meta := encode(PackMeta{Label: o.Label(), Mesh: o.Mesh().String(), Created: timeText(time.Now()), Version: s.d.Version})
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Trailer", errorTrailer+", "+countTrailer)
	n, err := o.Log().Export(r.Context(), w, meta, nil)
	if err == nil {
		err = turn()
	}
	if err != nil {
		w.Header().Set(errorTrailer, string(s.asError(r.Context(), err).JSON()))
		return
	}
	w.Header().Set(countTrailer, string(encode(n)))
}

// PackImported is what an import has done.
type PackImported struct {
	oplog.Imported
	Meta json.RawMessage `json:"meta,omitempty"`
	Held int             `json:"held"` // entries that wait here now
}

func (s *Service) serveImport(w http.ResponseWriter, r *http.Request) {
	o, bad := s.owner()
	if bad != nil {
		writeError(w, bad.HTTPStatus(), bad)
		return
	}
	answer, err := func() (*PackImported, error) {
		p, err := oplog.NewPackReader(r.Body)
		if err != nil {
			return nil, packError(err)
		}
		var meta PackMeta
		out := &PackImported{}
		if json.Unmarshal(p.Meta(), &meta) == nil {
			out.Meta = encode(meta)
		}
		if mesh := o.Mesh().String(); meta.Mesh != "" && meta.Mesh != mesh && r.URL.Query().Get("any_mesh") == "" {
			return nil, fail(CodeConflict, "file", "import it where that mesh is; entries of devices that are no members here would be held for ever",
				"the file is of %s, this replica is in %s", meta.Mesh, mesh)
		}
		out.Imported, err = o.Log().Import(r.Context(), p, nil)
		out.Held = o.Log().Held()
		return out, packError(err)
	}()
	if err != nil {
		e := s.asError(r.Context(), err)
		writeError(w, e.HTTPStatus(), e)
		return
	}
	writeJSON(w, encode(answer))
}

// packError says what is wrong with a file.
func packError(err error) error {
	switch {
	case errors.Is(err, oplog.ErrBadPack):
		return invalid("file", "what came before the damage is kept; take another copy of the file", "the file is no whole export: %v", err)
	case errors.Is(err, oplog.ErrFormat):
		return fail(CodeUnsupportedVersion, "file", "use a newer tally", "%v", err)
	case oplog.IsRangeError(err):
		return invalid("file", "the ranges before it are kept; this one is not what its device has signed", "%v", err)
	}
	return err
}

// Long runs a long call of the owner and tells progress as it comes.
func (c *Client) Long(ctx context.Context, verb string, q any, progress func(Progress), into any) error {
	res, err := c.open(ctx, "ops/"+verb, encode(q))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 64<<10), localBody)
	for lines.Scan() {
		if e, ok := ParseError(lines.Bytes()); ok {
			return e
		}
		var l progressLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return unreachable(err)
		}
		if l.Result != nil {
			return json.Unmarshal(l.Result, into)
		}
		if l.Progress != nil && progress != nil {
			progress(*l.Progress)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return unreachable(errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// Ops runs one of the owner's short calls.
func (c *Client) Ops(ctx context.Context, verb string, q, into any) error {
	return c.askInto(ctx, "ops/"+verb, q, into)
}

// ExportPack streams a pack to w; see serveExport for turn.
func (c *Client) ExportPack(ctx context.Context, turn bool, w io.Writer) (n oplog.PackCounts, err error) {
	verb := "ops/export"
	if turn {
		verb += "?turn=1"
	}
	res, err := c.open(ctx, verb, []byte("{}"))
	if err != nil {
		return n, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return n, fmt.Errorf("export: %w", err)
	}
	if e, ok := ParseError([]byte(res.Trailer.Get(errorTrailer))); ok {
		return n, e
	}
	if err := json.Unmarshal([]byte(res.Trailer.Get(countTrailer)), &n); err != nil {
		return n, unreachable(io.ErrUnexpectedEOF)
	}
	return n, nil
}

// ImportPack streams a pack from r into the log.
func (c *Client) ImportPack(ctx context.Context, r io.Reader, anyMesh bool) (n PackImported, err error) {
	u := url.URL{Scheme: "http", Host: "tally", Path: "/v1/ops/import"}
	if anyMesh {
		u.RawQuery = "any_mesh=1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), r)
	if err != nil {
		return n, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set(apiHeader, strconv.Itoa(c.api))
	res, err := c.hc.Do(req)
	if err != nil {
		return n, unreachable(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, localBody))
	if err != nil {
		return n, unreachable(err)
	}
	if res.StatusCode != http.StatusOK {
		return n, answerError(res.StatusCode, b)
	}
	err = json.Unmarshal(bytes.TrimSpace(b), &n)
	return n, err
}
