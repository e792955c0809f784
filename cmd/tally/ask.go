package main

import (
	"context"

	"tallystick/server"
)

// A verb is three steps: it checks what was typed, asks the owner process of
// this replica, and tells the answer. This file is the second and the third;
// tools are asked through call and shown with show.

// withOwner runs fn with a connection to the owner, which is started when
// there is none.
func (a *app) withOwner(ctx context.Context, fn func(*server.Client) error) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return fn(c)
}

// question is one thing that an owner can be asked.
type question[T any] func(context.Context, *server.Client) (T, error)

// ask asks the owner one question, over a connection of its own.
func ask[T any](ctx context.Context, a *app, q question[T]) (answer T, err error) {
	err = a.withOwner(ctx, func(c *server.Client) (err error) {
		answer, err = q(ctx, c)
		return err
	})
	return answer, err
}

// ops is a question about the replica itself; in may be nil.
func ops[T any](verb string, in any) question[T] {
	if in == nil {
		in = struct{}{}
	}
	return func(ctx context.Context, c *server.Client) (out T, err error) {
		err = c.Ops(ctx, verb, in, &out)
		return out, err
	}
}

// long is a question that takes its time: a bar shows how far the answer is.
func long[T any](a *app, verb string) question[T] {
	return func(ctx context.Context, c *server.Client) (out T, err error) {
		b := a.newBar(verb)
		defer b.end()
		err = c.Long(ctx, verb, struct{}{}, b.show, &out)
		return out, err
	}
}

// tell prints an answer: as one line of JSON with --json, else through human.
func (a *app) tell(answer any, human func() error) error {
	if a.json {
		return a.printJSON(answer)
	}
	return human()
}
