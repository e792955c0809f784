package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"tallystick/oplog"
	"tallystick/query"
	"tallystick/query/merges"
	"tallystick/replica"
	"tallystick/server"
)

// serve is the owner process: it locks the home, opens the replica, serves the
// socket and HTTP, and undoes all of it, in the other order, when ctx ends,
// somebody asks it to stop or the log fails.
//
//	stdio servers, CLI --socket--+
//	                             +-- server.Service -- replica.Replica -- oplog.Log
//	MCP clients ------HTTP-------+                         |
//	                                                  other replicas
func (a *app) serve(ctx context.Context, h home, s settings, log *slog.Logger, ready func(upInfo) error) (err error) {
	var late *time.Timer // runs out when closing hangs
	defer func() {
		if late != nil {
			late.Stop()
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if err != nil {
			err = s.explain(h, err)
		}
	}()
	if err := s.check(h); err != nil {
		return err
	}
	sets, err := server.ParseToolsets(s.Toolsets)
	if err != nil {
		return err
	}
	if err := h.make(); err != nil {
		return err
	}
	lock, err := lockOwner(h)
	if err != nil {
		return err
	}
	defer lock.release()
	fresh := !h.exists()
	a.keepBallast(h, log)

	ln, err := s.listenHTTP()
	if err != nil {
		return err
	}
	if ln != nil {
		defer ln.Close()
	}
	taken := s.choosePort()
	rep, err := replica.Open(ctx, replicaConfig(h, s, log))
	if err != nil {
		return err
	}
	defer closing(&err, "close the replica", rep.Close)
	if s.labelTyped && s.Label != rep.Label() {
		return &server.Error{Code: server.CodeConflict, Field: "label", Message: fmt.Sprintf("this replica is named %s, not %s", rep.Label(), s.Label),
			Hint: "leave --label out, or rename it with tally rename LABEL; another replica is made with TALLY_HOME=DIR"}
	}
	if s.Label != "" && s.Label != rep.Label() {
		log.Warn("this replica has its label already; the one given is not used, tally rename LABEL changes it", "label", rep.Label(), "given", s.Label)
	}
	if err := bringAtStart(ctx, h, rep, log); err != nil {
		return err
	}
	index, err := openIndex(ctx, h, s, rep, log)
	if err != nil {
		return err
	}
	defer func() {
		if e := index.Close(); e != nil { // it is folded again, so no reason to end ill
			log.Warn("search index not kept", "error", e)
		}
	}()

	var http *server.HTTPServer
	deps := server.Deps{
		Search: index, RefuseSecrets: s.RefuseSecrets,
		Log: rep, Blobs: rep.Log(), Mesh: mesh{rep}, Owner: rep, Version: programVersion().Version, Logger: log,
		Invite:     func(ctx context.Context, q server.InviteRequest) (server.Invite, error) { return invite(ctx, rep, q) },
		CheckLeave: rep.CheckLeave,
		Stop: func(q server.StopRequest) {
			if q.HandOver {
				cancel(errHandOver)
				return
			}
			cancel(errAsked)
		},
		AskFloor:  func(ref oplog.Ref) { rep.AskFloor(ref.Time()) },
		Clashes:   func() []merges.LabelClash { return clashes(rep) },
		Moves:     func() []merges.LabelMove { return moves(rep) },
		Formerly:  func() []merges.LabelMove { return formerly(rep) },
		Rename:    rename(rep),
		Translate: translate,
		HTTPURL: func() string {
			if http == nil {
				return ""
			}
			return http.URL()
		},
	}
	if ln != nil {
		if deps.Tokens, err = server.OpenTokens(h.tokenFile()); err != nil {
			return err
		}
	}
	svc, err := server.New(deps)
	if err != nil {
		return fmt.Errorf("build the server: %w", err)
	}
	if ln != nil {
		http, err = server.ListenHTTP(svc, server.HTTPOptions{Addr: ln.Addr().String(), Listener: ln, Tokens: deps.Tokens, Version: deps.Version, Toolsets: sets, Logger: log})
		if err != nil {
			return err
		}
		defer closing(&err, "close HTTP", http.Close)
		if err := writeHTTPFile(h, http.Addr()); err != nil {
			return err
		}
		defer os.Remove(h.httpFile())
	}
	s.remember(rep.Label(), rep.ListenAddr())
	if err := s.save(h); err != nil {
		return err
	}
	socket, err := server.ListenSocket(h.Run, svc)
	if err != nil {
		return err
	}
	defer closing(&err, "close the socket", socket.Close)

	info := upInfo{
		Label: rep.Label(), ID: replicaID(rep.Self().ID), Mesh: rep.Mesh().String(), New: fresh,
		Listen: rep.ListenAddr(), Socket: socket.Path(), Data: h.Data, PID: os.Getpid(), HTTP: deps.HTTPURL(), Taken: taken,
	}
	if fresh {
		info.Keys = whereKeys(h)
	}
	log.Info("serving", "label", info.Label, "mesh", info.Mesh, "listen", info.Listen, "http", info.HTTP, "pid", info.PID)
	if err := ready(info); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		log.Info("ending", "cause", context.Cause(ctx))
		late = time.AfterFunc(endPatience, func() { endNow(log) })
		if context.Cause(ctx) != errHandOver {
			if err := socket.Retire(); err != nil { // on a full disk; it only spares its clients a try
				log.Warn("clients are not told that the stop is meant", "error", err)
			}
		}
		if context.Cause(ctx) == errInterrupt {
			return ctx.Err()
		}
		return nil
	case <-rep.Done():
		return &server.Error{Code: server.CodeStoreDamaged, Field: h.Data, Message: "the log in " + h.Data + " has failed and the replica stopped",
			Hint: "look at the log above it; what was acknowledged is on disk, start it again with tally up"}
	}
}

// whereKeys says where the keys of a replica are, once, when they are made.
func whereKeys(h home) string {
	if replica.KeyInKeyring(h.State) {
		return "in the system's keyring, and the device's in a file of " + h.State
	}
	return "in files of " + h.State + " that only this user can read"
}

// endPatience is how long an owner may take to close. What it acknowledged is
// on disk at any moment (L1), so one that hangs gives way: others wait for
// its lock.
const endPatience = 15 * time.Second

func endNow(log *slog.Logger) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	log.Error("did not end in time, leaving now", "goroutines", string(buf))
	os.Exit(exitFailure)
}

// closing runs a closer at the end of a function and keeps its error unless
// there is one already.
func closing(err *error, what string, fn func() error) {
	if e := fn(); e != nil && *err == nil {
		*err = fmt.Errorf("%s: %w", what, e)
	}
}

func replicaConfig(h home, s settings, log *slog.Logger) replica.Config {
	projections, reactors := query.Default()
	return replica.Config{
		Dir: h.Data, StateDir: h.State, Label: s.Label, Listen: s.Listen, Peers: s.Peers, Static: s.Static,
		Projections: projections, Reactors: adaptReactors(reactors), Logger: log,
		Keyring: newKeyring(os.Getenv, replica.KeyInKeyring(h.State)),
	}
}

func invite(ctx context.Context, rep *replica.Replica, q server.InviteRequest) (server.Invite, error) {
	inv, err := rep.Invite(ctx, replica.InviteOptions{TTL: time.Duration(q.TTLMillis) * time.Millisecond, Addrs: q.Addresses})
	if err != nil {
		return server.Invite{}, asError(err)
	}
	return server.Invite{Token: inv.Token, ExpiresAt: inv.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z"), Addresses: inv.Addresses}, nil
}
