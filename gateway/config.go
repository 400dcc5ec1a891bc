package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// Config of the HTTP door. Start from [DefaultConfig]; the zero value is not valid.
type Config struct {
	Address  string // http.address: host and port to listen on; port 0 takes a free one
	Insecure bool   // http.insecure: listen on an address that others reach, though nobody is asked who they are

	Names          []string // http.names: host names of this node, besides localhost, its own name and all addresses
	Origins        []string // http.origins: origins of web pages that may use this node, besides loopback's and its own
	TrustedProxies []string // http.trusted_proxies: addresses or networks whose X-Forwarded-For is believed

	RequestBytes   int // http.request_bytes: the largest request body, unpacked, that is not a stream
	RequestRecords int // http.request_records: the most records in such a body
	HeaderBytes    int // http.header_bytes: the longest request line with its headers; a buffer of this size is kept by every connection

	ReadTimeout  time.Duration // http.read_timeout: the longest time for a request's head, and for any piece of its body
	IdleTimeout  time.Duration // http.idle_timeout: how long a connection is kept open between requests
	StreamIdle   time.Duration // http.stream_idle: the longest silence in a streamed request body
	WriteTimeout time.Duration // http.write_timeout: the longest time that a client may take no byte of an answer

	ProduceTimeout time.Duration // produce.timeout: the wait for an acknowledgement when a request names none
	DrainTimeout   time.Duration // http.drain_timeout: the longest time to finish requests while stopping

	Connections        int   // http.connections: the most open connections
	AddressConnections int   // http.address_connections: the most open connections from one address that is not loopback
	InFlightBytes      int64 // http.in_flight_bytes: the most bytes of request bodies held at one time, in the whole node, and as many of pages of records
	InFlightRequests   int   // http.in_flight_requests: the most requests served at one time
	SendBufferBytes    int   // http.send_buffer_bytes: of the kernel, for each connection
}

// The bounds of settings that more than one place asks for.
const (
	leastRequestBytes = 64 << 10
	leastHeaderBytes  = 4 << 10
	mostHeaderBytes   = 64 << 10
	mostTimeout       = 5 * time.Minute // of timeout_ms
)

// DefaultConfig is what `weir serve` runs with when nothing is configured.
func DefaultConfig() Config {
	return Config{
		Address:            "127.0.0.1:8080",
		RequestBytes:       10 << 20,
		RequestRecords:     10_000,
		HeaderBytes:        16 << 10,
		ReadTimeout:        30 * time.Second,
		IdleTimeout:        2 * time.Minute,
		StreamIdle:         5 * time.Minute,
		WriteTimeout:       30 * time.Second,
		ProduceTimeout:     10 * time.Second,
		DrainTimeout:       20 * time.Second,
		Connections:        20_000,
		AddressConnections: 2_000,
		InFlightBytes:      256 << 20,
		InFlightRequests:   20_000,
		SendBufferBytes:    128 << 10,
	}
}

// Validate reports every mistake at once, each with the name of its setting.
func (c Config) Validate() error {
	var mistakes []error
	check := func(ok bool, setting, format string, args ...any) {
		if !ok {
			mistakes = append(mistakes, fmt.Errorf("%s: %s", setting, fmt.Sprintf(format, args...)))
		}
	}
	loopback, err := loopbackAddress(c.Address)
	check(err == nil, "http.address", "%q: must be a host or address and a port, as 127.0.0.1:8080", c.Address)
	check(err != nil || loopback || c.Insecure, "http.address",
		"%q: others reach this address and nobody is asked who they are; listen on 127.0.0.1 or set http.insecure (--insecure)", c.Address)
	for _, name := range c.Names {
		check(validHostName(name), "http.names", "%q: must be a host name without a port", name)
	}
	for _, origin := range c.Origins {
		check(validOrigin(origin), "http.origins", "%q: must be as https://app.example.com, with a port where it is not the scheme's own", origin)
	}
	for _, proxy := range c.TrustedProxies {
		_, err := parsePrefix(proxy)
		check(err == nil, "http.trusted_proxies", "%q: must be an address or a network as 10.0.0.0/8", proxy)
	}
	check(c.RequestBytes >= leastRequestBytes && c.RequestBytes <= 1<<30, "http.request_bytes", "%d: must be from %d to %d", c.RequestBytes, leastRequestBytes, 1<<30)
	check(c.RequestRecords >= 1 && c.RequestRecords <= 1_000_000, "http.request_records", "%d: must be from 1 to 1000000", c.RequestRecords)
	check(c.HeaderBytes >= leastHeaderBytes && c.HeaderBytes <= mostHeaderBytes, "http.header_bytes", "%d: must be from %d to %d", c.HeaderBytes, leastHeaderBytes, mostHeaderBytes)
	check(c.ReadTimeout > 0, "http.read_timeout", "%v: must be more than 0", c.ReadTimeout)
	check(c.IdleTimeout > 0, "http.idle_timeout", "%v: must be more than 0", c.IdleTimeout)
	check(c.StreamIdle > 0, "http.stream_idle", "%v: must be more than 0", c.StreamIdle)
	check(c.WriteTimeout > 0, "http.write_timeout", "%v: must be more than 0", c.WriteTimeout)
	check(c.ProduceTimeout >= time.Millisecond && c.ProduceTimeout <= mostTimeout, "produce.timeout", "%v: must be from 1ms to %v", c.ProduceTimeout, mostTimeout)
	check(c.DrainTimeout > 0, "http.drain_timeout", "%v: must be more than 0", c.DrainTimeout)
	check(c.Connections >= 1, "http.connections", "%d: must be at least 1", c.Connections)
	check(c.AddressConnections >= 1, "http.address_connections", "%d: must be at least 1", c.AddressConnections)
	least := int64(c.largestBody())
	check(c.InFlightBytes >= least, "http.in_flight_bytes", "%d: must be at least %d, one of the largest requests", c.InFlightBytes, least)
	check(c.InFlightRequests >= 1, "http.in_flight_requests", "%d: must be at least 1", c.InFlightRequests)
	check(c.SendBufferBytes >= 4<<10 && c.SendBufferBytes <= 16<<20, "http.send_buffer_bytes", "%d: must be from 4096 to 16777216", c.SendBufferBytes)
	if len(mistakes) > 0 {
		return fault.New("gateway.Config", fault.Validation, nil, errors.Join(mistakes...))
	}
	return nil
}

// worstEncoding is how many bytes of JSON one byte of a record can take: \u00XX.
const worstEncoding = 6

// recordOverhead is room for the names and signs of JSON around one record.
const recordOverhead = 4 << 10

// largestRecord is the longest JSON of one record that any topic may take.
const largestRecord = worstEncoding*topic.MostMaxMessageBytes/2 + recordOverhead

// largestBody is the longest body that is not a stream. A record that is within its topic's limit always
// fits, whatever its encoding makes of it.
func (c Config) largestBody() int { return max(c.RequestBytes, largestRecord) }

// loopbackAddress says whether only this machine reaches a listener on an address.
func loopbackAddress(address string) (bool, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false, err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false, fmt.Errorf("port %d: %w", n, err)
	}
	if strings.EqualFold(host, "localhost") {
		return true, nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false, nil // a name, or every address: others may reach it
	}
	return ip.Unmap().IsLoopback(), nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		return netip.ParsePrefix(s)
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(ip, ip.BitLen()), nil
}

func validHostName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_' {
			continue
		}
		return false
	}
	return true
}

func validOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		u.Path == "" && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}
