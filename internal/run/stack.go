package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Stack is tasks that build upon each other: each is started when the one below is ready, and stopped
// after all above it have returned. It begins to stop when its context ends or a task returns.
//
//	stack := run.NewStack(ctx)
//	err := stack.Start("broker", node.run)
//	if err == nil {
//		err = stack.Start("gateway", server.run)
//	}
//	...
//	return stack.Wait()
//
// Its methods are for one goroutine.
type Stack struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	floors []*floor
}

type floor struct {
	name string
	stop context.CancelFunc
	done chan struct{}
	err  error // set before done is closed
}

// NewStack returns an empty stack.
func NewStack(ctx context.Context) *Stack {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Stack{ctx: ctx, cancel: cancel}
}

// Start runs a task on top of the others and returns when it calls ready. The task's context ends only
// when it is its turn to stop. An error says that it is not ready and never will be, or that the stack
// is stopping; [Stack.Wait] is to be called all the same.
func (s *Stack) Start(name string, task func(ctx context.Context, ready func()) error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.ctx))
	f := &floor{name: name, stop: stop, done: make(chan struct{})}
	s.floors = append(s.floors, f)
	ready := make(chan struct{})
	go func() {
		defer close(f.done)
		err := Safely(name, func() error { return task(ctx, sync.OnceFunc(func() { close(ready) })) })
		switch {
		case endOf(ctx, err):
			err = nil
		case err == nil && ctx.Err() == nil:
			err = errors.New("has ended by itself")
		}
		if err != nil {
			f.err = fmt.Errorf("%s: %w", name, err)
		}
		s.cancel(f.err)
	}()
	select {
	case <-ready:
		return nil
	case <-f.done:
		return f.err
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// Context ends when the stack begins to stop: for waits between two starts.
func (s *Stack) Context() context.Context { return s.ctx }

// Stop makes [Stack.Wait] begin to stop the tasks. It may be called from any goroutine.
func (s *Stack) Stop() { s.cancel(context.Canceled) }

// Wait returns when every task has returned, with the errors of all of them joined, the topmost first.
func (s *Stack) Wait() error {
	<-s.ctx.Done()
	var failed []error
	for _, f := range slices.Backward(s.floors) {
		f.stop()
		<-f.done
		failed = append(failed, f.err)
	}
	return errors.Join(failed...)
}
