package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"tallystick/query/artifact"
)

// Artifacts over the unix socket: a line of JSON that says what it is, then
// the content as it is. The content passes in chunks and is never whole in
// memory on this side.

// ArtifactQuery asks for a page of artifacts.
type ArtifactQuery struct {
	Session Session `json:"session"`
	Limit   int     `json:"limit,omitempty"`
	Offset  int     `json:"offset,omitempty"`
}

// ArtifactPut says what content is that follows.
type ArtifactPut struct {
	Session  Session         `json:"session"`
	Kind     string          `json:"kind"`
	Size     int64           `json:"size"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	OpID     string          `json:"op_id"`
	Key      string          `json:"idempotency_key,omitempty"`
}

// ArtifactGet asks for an artifact with its content.
type ArtifactGet struct {
	Session Session `json:"session"`
	ID      string  `json:"artifact_id"`
}

const maxPutLine = 256 << 10

func (s *Service) servePutArtifact(w http.ResponseWriter, r *http.Request) {
	out, bad := s.takeArtifact(r.Context(), r.Body)
	if bad != nil {
		io.Copy(io.Discard, io.LimitReader(r.Body, artifact.MaxContent)) // who writes hears the answer only then
		writeError(w, bad.HTTPStatus(), bad)
		return
	}
	writeJSON(w, encode(out))
}

func (s *Service) takeArtifact(ctx context.Context, body io.Reader) (any, *Error) {
	in := bufio.NewReaderSize(body, maxPutLine)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, invalid("", "use the same version of tally on both sides", "the request does not begin with a line of JSON: %v", err)
	}
	var q ArtifactPut
	if err := json.Unmarshal(line, &q); err != nil {
		return nil, invalid("", "use the same version of tally on both sides", "the request is not the JSON expected here: %v", err)
	}
	id, bad := s.bindWriter(q.Session)
	if bad != nil {
		return nil, bad
	}
	switch {
	case q.OpID == "" || len(q.OpID) > maxRouting/2 || len(q.Key) > maxKey:
		return nil, invalid("idempotency_key", "use a shorter one", "op_id or idempotency_key is missing or too long")
	case q.Size < 0:
		return nil, invalid("content", "use the same version of tally on both sides", "content of %d bytes", q.Size)
	}
	a := artifact.Artifact{Kind: q.Kind, Metadata: q.Metadata}
	out, bad := s.storeArtifact(ctx, id.Name, opKey("artifact_put", q.OpID, q.Key), a, in, q.Size)
	if bad == nil {
		s.mintAfter(ctx, id)
		s.log.Info("stored", "tool", "artifact_put", "identity", id.Name, "client", q.Session.Client)
	}
	return out, bad
}

func (s *Service) serveGetArtifact(w http.ResponseWriter, r *http.Request) {
	var q ArtifactGet
	bad := readRequest(w, r, &q)
	var rec artifact.Record
	if bad == nil {
		rec, bad = s.findArtifact(r.Context(), q.ID)
	}
	if bad == nil && !rec.Here {
		bad = fail(CodeNotFound, "artifact_id", "try again when a replica that has it is reachable", "the content of %s is not here yet: %d of %d bytes", rec.ID, rec.Have, rec.Size)
	}
	if bad != nil {
		writeError(w, bad.HTTPStatus(), bad)
		return
	}
	content, err := s.d.Blobs.Blob(rec.Hash)
	if err != nil {
		e := s.asError(r.Context(), err)
		writeError(w, e.HTTPStatus(), e)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := w.Write(append(encode(rec), '\n')); err != nil {
		return
	}
	if _, err := io.Copy(w, content); err != nil { // the reader sees that something is missing
		s.log.Warn("artifact not sent whole", "artifact", rec.ID, "err", err)
	}
}

// PutArtifact stores content of known size from open, which gives it from its
// beginning each time: a put whose answer was lost is repeated and counts
// once. The answer is that of artifact_put.
func (c *Client) PutArtifact(ctx context.Context, q ArtifactPut, open func() (io.Reader, error)) (json.RawMessage, error) {
	if q.Size > artifact.MaxContent {
		return nil, AsError(artifact.TooLarge(q.Size, artifact.MaxContent, "split it"))
	}
	if q.OpID == "" {
		q.OpID = NewOpID()
	}
	head := append(encode(q), '\n')
	for try := 1; ; try++ {
		content, err := open()
		if err != nil {
			return nil, err
		}
		b, err := answered(c.stream(ctx, "artifact/put", io.MultiReader(bytes.NewReader(head), content)))
		var lost *lostError
		if !errors.As(err, &lost) {
			return bytes.TrimSpace(b), err
		}
		if ctx.Err() != nil {
			return nil, AsError(ctx.Err())
		}
		if try == attempts {
			return nil, unreachable(lost.err)
		}
		if err := c.greet(ctx); err != nil { // starts it if nobody listens
			return nil, err
		}
	}
}

// GetArtifact writes the content of an artifact to w and returns what
// artifact_get says of it. Content that arrives otherwise than it was stored
// is an error.
func (c *Client) GetArtifact(ctx context.Context, q ArtifactGet, w io.Writer) (json.RawMessage, error) {
	if err := c.greet(ctx); err != nil {
		return nil, err
	}
	res, err := c.open(ctx, "artifact/get", encode(q))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	in := bufio.NewReaderSize(res.Body, maxPutLine)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, unreachable(err)
	}
	var rec artifact.Record
	if err := json.Unmarshal(line, &rec); err != nil {
		return nil, fail(CodeUnsupportedVersion, "", "use the same version of tally on both sides", "the replica's answer is not the JSON expected here: %v", err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), in)
	if err != nil {
		return nil, fmt.Errorf("read the content: %w", err)
	}
	if n != rec.Size || hex.EncodeToString(sum.Sum(nil)) != rec.SHA256 {
		return nil, fail(CodeStoreDamaged, "artifact_id", "read it again", "%d of %d bytes arrived, and not as they were stored", n, rec.Size)
	}
	return bytes.TrimSpace(line), nil
}

// Artifacts lists artifacts, newest first.
func (c *Client) Artifacts(ctx context.Context, q ArtifactQuery) (json.RawMessage, error) {
	b, e := c.ask(ctx, "artifact/list", q)
	return b, asErr(e)
}
