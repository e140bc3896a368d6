"""Receives traces with OTLP: receiver.py http|grpc [CERT KEY]

Prints its address, and for each request a line of JSON: headers, and the message as its canonical JSON with base64 ids."""

import gzip
import json
import ssl
import sys
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

protocol, *tls = sys.argv[1:]


def show(headers, message):
    print(json.dumps({"headers": headers, "request": MessageToDict(message)}), flush=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        show({name.lower(): value for name, value in self.headers.items()}, service.ExportTraceServiceRequest.FromString(body))
        response = service.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *args):
        pass


def serve_http():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f'listening address="127.0.0.1:{server.server_port}"', flush=True)
    server.serve_forever()


def serve_grpc():
    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as stubs

    class Service(stubs.TraceServiceServicer):
        def Export(self, request, context):
            show({item.key: item.value for item in context.invocation_metadata()}, request)
            return service.ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    stubs.add_TraceServiceServicer_to_server(Service(), server)
    if tls:
        cert, key = (open(path, "rb").read() for path in tls)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f'listening address="127.0.0.1:{port}"', flush=True)
    server.wait_for_termination()


serve_grpc() if protocol == "grpc" else serve_http()
