// Package run starts goroutines that somebody waits for, and stops them in order.
//
// A [Group] is a set of tasks that live and die together: when one returns an error or panics, the
// group's context ends, and [Group.Wait] returns after every task has. A panic becomes an error with
// its stack, so one broken connection handler does not end the process unless its owner says so.
// A [Stack] is tasks that build upon each other, started upwards and stopped downwards.
package run

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// PanicError is what a task's panic becomes.
type PanicError struct {
	Task  string
	Value any
	Stack []byte
}

// Error prints the task and the panic's value; the stack is in the field.
func (e *PanicError) Error() string { return fmt.Sprintf("%s: panic: %v", e.Task, e.Value) }

// Group runs tasks and waits for them. Make one with [NewGroup].
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	err error // the first error that was not the context's own end; guarded by mu
}

// NewGroup returns a group whose tasks get a context that ends with ctx, with the first task that
// fails, or with [Group.Stop].
func NewGroup(ctx context.Context) *Group {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{ctx: ctx, cancel: cancel}
}

// Context is the one that the group's tasks get.
func (g *Group) Context() context.Context { return g.ctx }

// Go starts a task. An error other than the context's end stops the whole group.
func (g *Group) Go(name string, task func(ctx context.Context) error) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		if err := Safely(name, func() error { return task(g.ctx) }); err != nil && !endOf(g.ctx, err) {
			g.fail(fmt.Errorf("%s: %w", name, err))
		}
	}()
}

// Stop ends the group's context. It does not wait.
func (g *Group) Stop() { g.cancel(context.Canceled) }

// Wait returns after every task has returned, with the first error among them.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(context.Canceled)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *Group) fail(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.mu.Unlock()
	g.cancel(err)
}

func endOf(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// Safely calls f and turns a panic into a [PanicError].
func Safely(name string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Task: name, Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
