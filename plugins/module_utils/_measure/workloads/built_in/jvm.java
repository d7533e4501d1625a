/* Copyright: threadwise.smt contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The service of the workload jvm: a thread for each connection, and for each request objects that live shortly,
 * are sorted, counted and printed as JSON.
 *
 *   Service PORT FILE
 *
 * Listens on 127.0.0.1 and then creates FILE. Knows just enough of HTTP/1.1 for requests without a body. Java 8 and up.
 */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

class Service {
    private static final int ORDERS = 400;

    private static final class Order {
        final String customer;
        final long cents;

        Order(String customer, long cents) {
            this.customer = customer;
            this.cents = cents;
        }
    }

    public static void main(String[] arguments) throws IOException {
        try (ServerSocket listening =
                new ServerSocket(Integer.parseInt(arguments[0]), 8192, InetAddress.getByName("127.0.0.1"))) {
            Files.createFile(Paths.get(arguments[1]));
            while (true) {
                Socket connection = listening.accept();
                Thread thread = new Thread(() -> serve(connection));
                thread.setDaemon(true);
                thread.start();
            }
        }
    }

    private static void serve(Socket connection) {
        try (Socket open = connection) {
            open.setTcpNoDelay(true);
            BufferedReader requests =
                    new BufferedReader(new InputStreamReader(open.getInputStream(), StandardCharsets.ISO_8859_1));
            OutputStream answers = open.getOutputStream();
            long seed = 1;
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                if (!line.isEmpty()) {
                    continue;
                }
                seed++;
                byte[] body = answer(seed).getBytes(StandardCharsets.UTF_8);
                String head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + body.length;
                answers.write((head + "\r\n\r\n").getBytes(StandardCharsets.US_ASCII));
                answers.write(body);
            }
        } catch (IOException gone) {
            // The client has ended: so does its thread.
        }
    }

    private static String answer(long seed) {
        List<Order> orders = new ArrayList<>();
        long random = seed;
        for (int number = 0; number < ORDERS; number++) {
            random = random * 48271 % 2147483647;
            orders.add(new Order("customer-" + random % 97, random % 100000));
        }
        orders.sort(Comparator.comparing((Order order) -> order.customer).thenComparingLong(order -> order.cents));
        Map<String, Long> sums = new TreeMap<>();
        for (Order order : orders) {
            sums.merge(order.customer, order.cents, Long::sum);
        }
        StringBuilder json = new StringBuilder("{");
        for (Map.Entry<String, Long> sum : sums.entrySet()) {
            json.append(json.length() > 1 ? "," : "").append('"').append(sum.getKey()).append("\":");
            json.append(sum.getValue());
        }
        return json.append('}').toString();
    }
}
