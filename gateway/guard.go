package gateway

import (
	"bytes"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/internal/fault"
)

// guard decides which names and which pages may speak with a node that asks nobody who they are.
//
// A page of a foreign origin is told apart by the Origin header that browsers add. A page whose own
// name was rebound to this node's address is of the same origin for the browser; it is told apart by the
// Host header, which must be a name of this node. An address is always one: no name can be rebound to it.
type guard struct {
	names   map[string]struct{} // lower case; written before the server runs only
	origins map[string]struct{} // lower case, as https://app.example.com
	proxies []netip.Prefix

	// good holds Host headers that were allowed, as they came, so that the next request with one costs a
	// look into a map. It is replaced whole and bounded.
	good atomic.Pointer[map[string]struct{}]
	mu   sync.Mutex // of those who replace it
}

const mostGoodHosts = 64

func newGuard(cfg Config) (*guard, error) {
	g := &guard{names: map[string]struct{}{}, origins: map[string]struct{}{}}
	for _, name := range cfg.Names {
		g.names[hostName(name)] = struct{}{}
	}
	for _, origin := range cfg.Origins {
		g.origins[strings.ToLower(origin)] = struct{}{}
	}
	for _, proxy := range cfg.TrustedProxies {
		p, err := parsePrefix(proxy)
		if err != nil {
			return nil, fault.New("gateway.New", fault.Validation, nil, err)
		}
		g.proxies = append(g.proxies, p)
	}
	g.good.Store(&map[string]struct{}{})
	return g, nil
}

// addHostName takes the machine's own name; a machine that does not know it has none.
func (g *guard) addHostName(name string, err error) {
	if err == nil && name != "" {
		g.names[hostName(name)] = struct{}{}
	}
}

// hostName is a name as it is compared.
func hostName(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// checkHost allows a Host header, or says why not. Only HTTP/1.0, which no browser speaks, may have none.
func (g *guard) checkHost(host []byte, isHTTP11 bool) error {
	if _, ok := (*g.good.Load())[string(host)]; ok {
		return nil
	}
	if len(host) == 0 && !isHTTP11 {
		return nil
	}
	if !g.isOurs(string(host)) {
		return fault.New("gateway.Host", fault.Forbidden, nil, &problem.Denied{
			Action: "connect", Resource: "host",
			Why: "the host " + quote(string(host)) + " is not a name of this node; http.names lists the names that it answers to",
		})
	}
	g.remember(string(host))
	return nil
}

func (g *guard) remember(host string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := *g.good.Load()
	if len(old) >= mostGoodHosts {
		return
	}
	next := maps.Clone(old)
	next[host] = struct{}{}
	g.good.Store(&next)
}

// isOurs says whether a host, with or without a port, names this node.
func (g *guard) isOurs(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	name = hostName(name)
	if isLocalhost(name) {
		return true
	}
	_, ok := g.names[name]
	return ok
}

// isLocalhost: browsers resolve these names to loopback themselves.
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// checkOrigin allows a request of a web page: one that this node served, one on this machine, or one
// that is listed. host is the Host header, which was checked before.
func (g *guard) checkOrigin(origin, host []byte) error {
	if g.originAllowed(string(origin), string(host)) {
		return nil
	}
	return fault.New("gateway.Origin", fault.Forbidden, nil, &problem.Denied{
		Action: "connect", Resource: "origin",
		Why: "pages of the origin " + quote(string(origin)) + " may not use this node; http.origins lists those that may",
	})
}

func (g *guard) originAllowed(origin, host string) bool {
	origin = strings.ToLower(origin)
	if _, ok := g.origins[origin]; ok {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.Path != "" {
		return false
	}
	if u.Host == strings.ToLower(host) {
		return true
	}
	name := u.Hostname()
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return isLocalhost(strings.TrimSuffix(name, "."))
}

// clientAddr is who asks: the peer, or, when the peer is a trusted proxy, the last address in
// X-Forwarded-For that is not one.
func (g *guard) clientAddr(peer netip.Addr, forwarded []byte) netip.Addr {
	for len(forwarded) > 0 && g.trusted(peer) {
		var last []byte
		if i := bytes.LastIndexByte(forwarded, ','); i >= 0 {
			last, forwarded = forwarded[i+1:], forwarded[:i]
		} else {
			last, forwarded = forwarded, nil
		}
		ip, err := netip.ParseAddr(string(bytes.TrimSpace(last)))
		if err != nil {
			return peer
		}
		peer = ip.Unmap()
	}
	return peer
}

func (g *guard) trusted(ip netip.Addr) bool {
	for _, p := range g.proxies {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}
